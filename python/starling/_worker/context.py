"""Functions for code that runs as a call."""

import collections

Task = collections.namedtuple("Task", "job local attempt cpus time_limit_ns")
Task.__doc__ = """The task of the call that runs: ids, cpus and time limit (0: none).

`attempt` is the id of this run: each run of a call has its own, and a later one a greater one. It
is no count: homes number the attempts of all their tasks.
"""

_state = {"head": None, "send_note": None, "slots": None, "line": None}
_kept: dict = {}


def current_task():
    """The task of the call that runs here, or None outside calls."""
    head = _state["head"]
    if head is None:
        return None
    _, _, attempt, job, local, limit, cpus, _, _ = head
    return Task(job, local, attempt, cpus / 1000, limit)


def note(text):
    """Reports the progress of the call that runs here. Outside calls it does nothing."""
    send = _state["send_note"]
    if send is not None and _state["head"] is not None:
        send(str(text))


def context():
    """A dict that lives as long as this worker, for values that several calls use."""
    return _kept


def slot(number):
    """The value of an input slot. Pickled arguments refer to inputs by this function."""
    slots = _state["slots"]
    if slots is None:
        raise RuntimeError("a reference to a future was unpickled outside its call")
    return slots(number)


def same(value):
    return value


def own(_job, fn, part):
    """A part of a value of one job: equal parts of two jobs are two functions."""
    return fn(part)


def joined(*parts):
    """The value of a pickle in parts."""
    import pickle

    return pickle.loads(parts[0] if len(parts) == 1 else b"".join(parts))


def applied(fn, /, *args, **kwargs):
    return fn(*args, **kwargs)

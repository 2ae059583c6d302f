"""The future of one call."""

import asyncio
import concurrent.futures
import pickle
import re
import threading
import time

from . import _pickling
from ._errors import CallFailed, CallRefused, DependencyError, RemoteError, RemoteTraceback
from ._worker import values, wire

DONE, FAILED, CANCELLED, SKIPPED = 0, 1, 2, 3
_CLASS_NAME = re.compile(r"[\w.<>]+")
# How the errors of calls begin that failed outside their functions.
_OUTSIDE = ("exceeded its", "its process", "the worker", "its worker")
_REFUSALS = ("the function cannot be loaded", "the function was pickled", "the arguments of the call")
_REFUSAL_TYPES = ("CannotFork", "UnknownFunction", "WrongFunction", "WrongPython")
_NO_WORKER = ("no worker can start", "the runtime cannot be loaded")

_MISSING = (
    "module %r is missing on n%d: install it there, give Runtime(environment=...), or keep its file "
    "in the folder of the script"
)


# `here` is true in a thread that brings ends: it must not wait for further ends.
dispatching = threading.local()


# The age at which an answer of `running` is asked for again, in seconds.
RUNNING_KEPT = 0.1


class End:
    """The end of a task, as the core reports it."""

    __slots__ = ("attempt", "verdict", "error", "size", "node", "inline")

    def __init__(self, attempt, verdict, error, size, node, inline):
        self.attempt, self.verdict, self.error = attempt, verdict, error
        self.size, self.node, self.inline = size, node, inline


class _Stored:
    """A value that is not unpickled yet."""

    __slots__ = ()


_STORED = _Stored()


class Future(concurrent.futures.Future):
    """A `concurrent.futures.Future` that is awaitable and may be an argument of calls."""

    # A task that makes the lost result again.
    _reader = None
    # When the node was asked whether the call runs, and its answer.
    _looked = (-RUNNING_KEPT, False)

    def __init__(self, client, local, name, parents):
        super().__init__()
        self._client, self._local, self._name, self._parents = client, local, name, parents
        self._end = None
        self._unexplained = False
        # An adapter's function that gives the exception to raise for another.
        self._raises = None
        if client._pump is not None:
            self._waiters = Waiters(client._pump)

    # Values.

    def done(self):
        if self._client._pump is not None and not super().done():
            # Nothing else looks at ends while the call runs.
            self._client._pump(super().done, 0)
        return super().done()

    def running(self):
        """Whether a node runs the call; an answer may be a tenth of a second old."""
        if self.done():
            return False
        at, runs = self._looked
        if time.monotonic() - at >= RUNNING_KEPT:
            runs = self._client._is_running(self)
            self._looked = (time.monotonic(), runs)
        return runs

    def result(self, timeout=None):
        self._explain(timeout)
        if self._raises is not None:
            error = self.exception(timeout)
            if error is not None:
                raise error
        end = None if timeout is None else time.monotonic() + timeout
        value = super().result(timeout)
        if value is not _STORED:
            return value
        return self._load(None if end is None else max(0, end - time.monotonic()))

    def exception(self, timeout=None):
        self._explain(timeout)
        error = super().exception(timeout)
        return self._raises(error) if error is not None and self._raises is not None else error

    def _explain(self, timeout):
        """Adds the cause to the exception, once, where it is first read.

        It is the traceback of the worker; of a skipped call the failure of its input.
        """
        end = None if timeout is None else time.monotonic() + timeout
        if self._client._pump is not None and not super().done():
            self._client._pump(super().done, timeout)
            timeout = None if super().done() else 0
        error = super().exception(timeout)
        if error is None or not self._unexplained:
            return
        if self._end.verdict == SKIPPED:
            cause = first_failure(self, end)
            if cause is not None:
                error.__cause__ = cause
                self._unexplained, self._parents = False, ()
            return
        self._unexplained = False
        frames = self._client._traceback(self)
        if frames:
            if isinstance(error, RemoteError):
                error.frames = frames
            error.__cause__ = RemoteTraceback(frames)

    def _load(self, timeout=None):
        data = self._bytes(timeout)
        value = _decode(data)
        with self._condition:
            self._result = value
        return value

    def _bytes(self, timeout=None):
        if self._end.inline is not None:
            return self._end.inline
        return self._client._fetch(self, timeout)

    def _is_unread(self):
        """Whether the result is on the cluster alone."""
        return self._result is _STORED and self._end.inline is None

    def raw(self, timeout=None):
        """The bytes of the result, which are not unpickled. A failed call raises."""
        end = None if timeout is None else time.monotonic() + timeout
        error = self.exception(timeout)
        if error is not None:
            raise error
        if self._end is None:
            raise RuntimeError("%r was not ended by the cluster" % (self,))
        return bytes(self._bytes(None if end is None else max(0, end - time.monotonic())))

    @property
    def task(self):
        """The task's id, as the command line has it."""
        return None if self._local is None else self._client._task_text(self._local)

    @property
    def attempt(self):
        """The id of the attempt that ended, or None before. It is no count of attempts."""
        return None if self._end is None else self._end.attempt

    def explain(self):
        """The sentences of `starling task explain` about the call's present state."""
        return self._client._explained(self)

    @property
    def stdout(self):
        """The text that the call printed."""
        return self._client._printed(self, False)

    @property
    def stderr(self):
        return self._client._printed(self, True)

    # Ends.

    def _finish(self, end):
        """From the dispatcher: the task has ended."""
        self._end = end
        if end.verdict != SKIPPED:
            self._parents = ()
        try:
            if end.verdict == DONE:
                self.set_result(_STORED)
            elif end.verdict == CANCELLED:
                if not self._cancelled_here():
                    self.set_exception(concurrent.futures.CancelledError())
            else:
                self.set_exception(self._error(end))
        except concurrent.futures.InvalidStateError:
            # Cancelled here first, or an end that came twice.
            self._unexplained, self._parents = False, ()

    def _error(self, end):
        if end.verdict == SKIPPED:
            self._unexplained = bool(self._parents)
            return DependencyError("%s never ran, because an input failed" % self._title())
        kind, _, text = end.error.partition(": ")
        self._unexplained = True
        error = self._returned(end.inline)
        if error is None:
            # "memory" is of the node, and no name of a class.
            known = bool(text) and _CLASS_NAME.fullmatch(kind) is not None and kind != "memory"
            outside = not known or end.error.startswith(_OUTSIDE) or kind == "Died"
            refused = text.startswith(_REFUSALS) or kind in _REFUSAL_TYPES
            refused = refused or end.error.startswith(_NO_WORKER)
            cls = CallRefused if refused else CallFailed if outside else RemoteError
            error = cls(end.error, kind if known else "")
        if hasattr(error, "add_note"):
            error.add_note(self._note())
            missing = _missing_module(error, kind, text)
            if missing:
                error.add_note(_MISSING % (missing, end.node))
        return error

    def _returned(self, pickled):
        if not pickled or pickled[:1] != b"\x80":
            return None
        try:
            error = pickle.loads(pickled)
        except Exception:
            return None
        return error if isinstance(error, BaseException) else None

    def _skipped_parents(self):
        """Of a skipped call the inputs, as long as its cause is not known."""
        is_skipped = self._end is not None and self._end.verdict == SKIPPED
        return self._parents if is_skipped else ()

    def _has_failed(self):
        """Of an ended call."""
        return self.cancelled() or super().exception() is not None

    def _failure(self):
        try:
            return self.exception()
        except concurrent.futures.CancelledError as error:
            return error

    def _note(self):
        job, task = self.task.split(".", 1)
        more = "starling task explain {0} {1}; its log: starling job output {0} {1} --stderr"
        attempt = attempt_text(self.attempt)
        title = self._title()
        return "%s, attempt %s on n%d; %s" % (title, attempt, self._end.node, more.format(job, task))

    def _title(self):
        return "task %s %r" % (self.task, self._name)

    # Cancelling.

    def cancel(self, kill=False):
        """Cancels the call if it has not begun; with `kill` also if it runs."""
        if self.done():
            return self.cancelled()
        return self._client._cancel(self, kill)

    def _cancelled_here(self):
        return cancel_and_notify(self)

    # Pickling, waiting, showing.

    def __reduce__(self):
        return _pickling.reduce_future(self)

    def __await__(self):
        return self._wait().__await__()

    async def _wait(self):
        if self._client._pump is not None:
            return self.result()
        loop = asyncio.get_running_loop()
        if not self.done():
            waiter = loop.create_future()

            def wake(_):
                try:
                    loop.call_soon_threadsafe(end_wait, waiter)
                except RuntimeError:
                    # The loop has ended; nothing waits any more.
                    pass

            self.add_done_callback(wake)
            await waiter
        if self.cancelled():
            raise asyncio.CancelledError()
        # What asks a node must not block the loop.
        if self._unexplained:
            await loop.run_in_executor(None, self._explain, None)
        elif self._end is not None and self._end.inline is None and self._result is _STORED:
            return await loop.run_in_executor(None, self.result)
        return self.result()

    def __repr__(self):
        return "<Future %s of %r: %s>" % (self.task, self._name, self._shown_state())

    def _shown_state(self):
        if not self.done():
            return "running" if self.running() else "pending"
        if self.cancelled():
            return "cancelled"
        error = super().exception()
        return "done" if error is None else "failed (%s)" % type(error).__name__

    def _repr_html_(self):
        import html

        return "<code>%s</code>" % html.escape(repr(self))

    def __del__(self):
        client = self.__dict__.get("_client")
        if client is not None:
            client._forget(self._local)

    def _broken(self, error):
        """The end will not come."""
        try:
            self.set_exception(error)
        except concurrent.futures.InvalidStateError:
            return


class Waiters(list):
    """The waiters of a future in a call. Their waits bring ends, since no thread does."""

    def __init__(self, pump):
        super().__init__()
        self.pump = pump

    def append(self, waiter):
        if not isinstance(waiter.event, PumpedEvent):
            waiter.event = PumpedEvent(self.pump)
        super().append(waiter)


class PumpedFuture(concurrent.futures.Future):
    """A plain future in a call. Its waits bring ends."""

    def __init__(self, pump):
        super().__init__()
        self._pump, self._waiters = pump, Waiters(pump)

    def done(self):
        if not super().done():
            self._pump(super().done, 0)
        return super().done()

    def result(self, timeout=None):
        return super().result(self._left(timeout))

    def exception(self, timeout=None):
        return super().exception(self._left(timeout))

    def _left(self, timeout):
        if not super().done():
            self._pump(super().done, timeout)
        # After the wait there is nothing more to wait for.
        return timeout if super().done() else 0


class PumpedEvent(threading.Event):
    def __init__(self, pump):
        super().__init__()
        self.pump = pump

    def wait(self, timeout=None):
        if not self.is_set():
            self.pump(self.is_set, timeout)
        return self.is_set()


def _missing_module(error, kind, text):
    """The name of the module whose import has failed; None for another exception."""
    if isinstance(error, ModuleNotFoundError):
        return error.name
    found = re.search("No module named '([^']+)'", text) if kind == "ModuleNotFoundError" else None
    return found.group(1) if found else None


def attempt_text(attempt):
    """As the command line shows it: the term of the home, and a number."""
    return "%d.%d" % (attempt >> 32, attempt & 0xFFFFFFFF)


def cancel_and_notify(future):
    """Cancels a future that never runs here, and wakes its waiters."""
    if not concurrent.futures.Future.cancel(future):
        return False
    # As `set_running_or_notify_cancel`, but several threads may do it at once.
    with future._condition:
        if future._state == "CANCELLED":
            future._state = "CANCELLED_AND_NOTIFIED"
            for waiter in future._waiters:
                waiter.add_cancelled(future)
    return True


def first_failure(skipped, end):
    """The failure because of which a call never ran, through all inputs that never ran either.

    None if it is not known at `end`: the end of an input may come after that of its reader.
    """
    first, parents = None, skipped._skipped_parents()
    while parents:
        first = failed_one(parents, end)
        if first is None:
            return None
        parents = first._skipped_parents()
    if first is None:
        return None
    error = first._failure()
    return (error.__cause__ or error) if isinstance(error, DependencyError) else error


def failed_one(futures, end):
    """The first that has failed or was cancelled; None if it is not known at `end`."""
    if not any(future.done() and future._has_failed() for future in futures):
        left = None if end is None else max(0, end - time.monotonic())
        left = 0 if getattr(dispatching, "here", False) else left
        concurrent.futures.wait(futures, left, concurrent.futures.FIRST_EXCEPTION)
    failed = (future for future in futures if future.done() and future._has_failed())
    return next(failed, None)


def end_wait(waiter):
    """Lets the awaiting code of a future of asyncio continue. A repetition does nothing."""
    if not waiter.done():
        waiter.set_result(None)


def _decode(data):
    """A value by its first bytes, as nodes know it."""
    start = bytes(data[:4])
    if start == b"SPB1":
        codec = wire.SPB1
    elif start[:1] == b"\x80":
        codec = wire.PICKLE
    elif start[:1] == b"\xff":
        codec = wire.ARROW
    else:
        codec = wire.JSON
    return values.load(wire.INLINE, codec, data)

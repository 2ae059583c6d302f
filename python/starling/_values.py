"""Values on the cluster: put, large arguments, gather."""

import functools

from . import _pickling, _reading
from ._errors import TooLarge
from ._future import Future
from ._options import Options
from ._worker.context import joined, own, same

# A part of a value travels as the bytes of a function that returns it.
PART_MAX = 7 << 20
# The key-value store takes 8 MiB. A part has its own pickle around it.
FUNCTION_MAX = PART_MAX + (64 << 10)
VALUE_MAX = 256 << 20
# The name of the tasks of puts. It is no name of a function.
PUT_NAME = "<put>"


def put(client, value):
    _pickling.ship_modules()
    try:
        data = _pickling.dumps(value)
    except Exception as error:
        raise _pickling.explained(error, value, "value") from error
    return put_bytes(client, data)


def put_bytes(client, data):
    """The future of a pickled value; equal bytes share one as long as it is in use."""
    if len(data) > VALUE_MAX:
        text = "a value of %d bytes, at most %d; write it to a file that calls read"
        raise TooLarge(text % (len(data), VALUE_MAX))
    key = _pickling.digest(data)
    found = client._puts.get(key)
    if found is not None and found._local is not None:
        return found
    options = Options(name=PUT_NAME)
    parts = [data[at : at + PART_MAX] for at in range(0, len(data), PART_MAX)] or [b""]
    if len(parts) == 1:
        future = _constant(client, options, joined, parts[0])
    else:
        futures = [_constant(client, options, same, part) for part in parts]
        function = _pickling.function_bytes(joined)
        future = client._call(options, function, joined, tuple(futures), {})
    client._puts[key] = future
    return future


def _constant(client, options, function, part):
    # With the job, so that no other client uses the key that this one removes.
    own_part = functools.partial(own, client._open().id, function, part)
    data = _pickling.function_bytes(own_part)
    key = _pickling.digest(data)
    try:
        return client._call(options, data, function, (), {})
    finally:
        if key in client._functions:
            client._uploaded[b"function/" + key.hex().encode()] = True


def shrink(client, args, kwargs, most):
    """The arguments with their large parts as puts."""
    sizes = {}

    def smaller(value):
        if isinstance(value, Future):
            return value
        with _pickling.Slots() as slots:
            data = _pickling.dumps(value)
        if len(data) < 1024 or slots.numbers:
            return value
        sizes[id(value)] = len(data)
        return put_bytes(client, data)

    ordered = sorted(
        [(k, value) for k, value in enumerate(args)] + list(kwargs.items()),
        key=lambda pair: str(pair[0]),
    )
    args = tuple(smaller(value) for value in args)
    kwargs = {key: smaller(value) for key, value in kwargs.items()}
    data, parents = _pickling.call_bytes(args, kwargs)
    if len(data) > most:
        raise TooLarge(_largest(len(data), most, ordered))
    return data, parents


def _largest(size, most, ordered):
    sizes = []
    for name, value in ordered:
        with _pickling.Slots():
            sizes.append((len(_pickling.dumps(value)), name))
    shown = ", ".join("%s: %d bytes" % (name, size) for size, name in sorted(sizes, key=_size)[-3:])
    text = (
        "the arguments have %d bytes with their futures, at most %d; use put for the large parts, "
        "and combine many futures in several calls (%s)"
    )
    return text % (size, most, shown)


def _size(pair):
    return pair[0]


def gather(futures):
    found = []
    _flat(futures, found)
    with _reading.Gathering(found):
        return _gathered(futures)


def _flat(part, found):
    """The futures in a structure, but those of iterators."""
    if isinstance(part, Future):
        found.append(part)
    elif isinstance(part, (list, tuple, set, frozenset, dict)):
        for each in part.values() if isinstance(part, dict) else part:
            _flat(each, found)


def _gathered(futures):
    if isinstance(futures, Future):
        return futures.result()
    if isinstance(futures, dict):
        return {key: _gathered(part) for key, part in futures.items()}
    if isinstance(futures, tuple) and hasattr(futures, "_fields"):
        return type(futures)(*(_gathered(part) for part in futures))
    if isinstance(futures, (list, tuple, set, frozenset)):
        return type(futures)(_gathered(part) for part in futures)
    if hasattr(futures, "__next__") or type(futures).__name__ == "Map":
        return [_gathered(part) for part in futures]
    return futures

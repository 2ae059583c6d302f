"""Python objects as values, and back. SPB1 is in docs/worker-protocol.md."""

import json
import mmap
import os
import pickle
import struct

from . import wire

# Smaller buffers stay in the pickle.
BUFFER_MIN = 4096
ALIGN = 64
_HEAD = struct.Struct("<4sIQ")
_PLACE = struct.Struct("<QQ")


class Damaged(Exception):
    """A value that cannot be decoded, and the reason."""


def dumps(obj):
    """(codec, parts): the bytes of `obj` in pieces, without copies of its buffers."""
    buffers = []

    def keep(buffer):
        try:
            raw = buffer.raw()
        except BufferError:
            return True
        if raw.nbytes < BUFFER_MIN:
            return True
        buffers.append(raw)
        return False

    try:
        data = pickle.dumps(obj, 5, buffer_callback=keep)
    except Exception:
        # An object of the caller's script, a lambda, or an object that no pickler takes.
        from starling import _cloudpickle

        del buffers[:]
        try:
            data = _cloudpickle.dumps(obj, 5, buffer_callback=keep)
        except Exception as error:
            from starling import _pickling

            raise _pickling.explained(error, obj, "result") from None
    if not buffers:
        return wire.PICKLE, [data]
    return wire.SPB1, spb1(data, buffers)


def json_bytes(obj):
    """The JSON of `obj` if it holds the object exactly, else None."""
    if not _is_json(obj, 0):
        return None
    try:
        return json.dumps(obj, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    except UnicodeEncodeError:
        return None


def _is_json(obj, depth):
    kind = type(obj)
    if obj is None or kind in (bool, int, str):
        return True
    if kind is float:
        return obj - obj == 0
    if depth > 64:
        return False
    if kind is list:
        return all(_is_json(entry, depth + 1) for entry in obj)
    if kind is dict:
        return all(type(key) is str and _is_json(obj[key], depth + 1) for key in obj)
    return False


def spb1(data, buffers):
    """The pieces of an SPB1 value."""
    at = _HEAD.size + _PLACE.size * len(buffers) + len(data)
    places, parts = [], [data]
    for raw in buffers:
        gap = -at % ALIGN
        at += gap
        places.append(_PLACE.pack(at, raw.nbytes))
        parts += (bytes(gap), raw)
        at += raw.nbytes
    head = _HEAD.pack(b"SPB1", len(buffers), len(data))
    return [head + b"".join(places)] + parts


def spb1_parts(view):
    """The pickle and the buffers of an SPB1 value."""
    if len(view) < _HEAD.size:
        raise Damaged("SPB1 of %d bytes" % len(view))
    magic, count, length = _HEAD.unpack_from(view)
    at = _HEAD.size + _PLACE.size * count
    if magic != b"SPB1" or at + length > len(view):
        raise Damaged("no SPB1 head")
    buffers = []
    for k in range(count):
        begin, size = _PLACE.unpack_from(view, _HEAD.size + _PLACE.size * k)
        if begin % ALIGN or begin + size > len(view):
            raise Damaged("buffer %d of an SPB1 value lies outside it" % k)
        buffers.append(view[begin : begin + size])
    return view[at : at + length], buffers


def size_of(parts):
    return sum(part.nbytes if type(part) is memoryview else len(part) for part in parts)


def write_file(path, parts):
    """A new file of the pieces. A file that could not be written whole is removed."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        for part in parts:
            wire.write_all(fd, part)
    except BaseException:
        os.unlink(path)
        raise
    finally:
        os.close(fd)


def load(how, codec, data):
    """The object of a value. Buffers of a file are its private, writable map."""
    if how == wire.FILE:
        path = os.fsdecode(data)
        # The output of a command: the function gets its path.
        return path if codec == wire.RAW else load_file(codec, path)
    if codec == wire.PICKLE:
        return pickle.loads(data)
    if codec == wire.SPB1:
        pickled, buffers = spb1_parts(_writable(data))
        return pickle.loads(pickled, buffers=buffers)
    return _load_plain(codec, data)


def _writable(data):
    return memoryview(data if isinstance(data, bytearray) else bytearray(data))


def load_file(codec, path):
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        if size == 0:
            return _load_plain(codec, b"")
        mapped = mmap.mmap(fd, size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
    finally:
        os.close(fd)
    view = memoryview(mapped)
    if codec == wire.SPB1:
        pickled, buffers = spb1_parts(view)
        return pickle.loads(pickled, buffers=buffers)
    if codec == wire.PICKLE:
        return pickle.loads(view)
    return _load_plain(codec, view)


def _load_plain(codec, data):
    if codec == wire.RAW:
        return bytes(data)
    if codec == wire.JSON:
        return json.loads(bytes(data))
    if codec == wire.TEXT:
        return str(data, "utf-8")
    if codec == wire.ARROW:
        import pyarrow  # Only where a call uses Arrow.

        return pyarrow.ipc.open_stream(pyarrow.py_buffer(data)).read_all()
    raise Damaged("codec %d with %d bytes" % (codec, len(data)))

"""Layout of frames, records and values."""

import json
import os
import struct

PROTOCOL = 1
FRAME_MAX = 1 << 20
INLINE_MAX = 1 << 16
PRINT_MAX = 1_000_000
# A larger buffer would be mapped and unmapped for each read.
READ_BYTES = 1 << 16
# Parts of a PRINT, so that a frame never exceeds its limit.
PART_MAX = 1 << 18
GARBAGE_EXIT = 70

FUNC, DROP, CALL, STOP, ANSWER, GO = 1, 2, 3, 4, 5, 6
HELLO, RESULT, PRINT, NOTE, ASK, REST = 65, 66, 67, 68, 69, 70
FORK, FORKED, REFUSED_FORK, EXITED = 16, 80, 81, 82

OK, RAISED, REFUSED, CANCELLED, DIED = 0, 1, 2, 3, 4
RETRYABLE = 1
FORK_CALL = 1
INLINE, FILE = 0, 1
RAW, PICKLE, SPB1, JSON, ARROW, TEXT = 0, 1, 2, 3, 4, 5
ARGS_SLOT = 0xFFFF

U32 = struct.Struct("<I")
U64 = struct.Struct("<Q")
RECORD = struct.Struct("<IB")
VALUE = struct.Struct("<BBHI")
CALL_HEAD = struct.Struct("<Q16sQQQQIHH")
RESULT_HEAD = struct.Struct("<QQQQBBHI")
ASK_HEAD = struct.Struct("<QQI")
REST_BODY = struct.Struct("<QB")
GO_BODY = struct.Struct("<QB")
PRINT_HEAD = struct.Struct("<QBQ")
FORKED_BODY = struct.Struct("<QI")
EXITED_BODY = struct.Struct("<Ii")


class Garbage(Exception):
    """Bytes that are no frame, record or value of the protocol."""


def record(kind, body):
    return RECORD.pack(len(body), kind) + body


def value(how, codec, slot, data):
    return VALUE.pack(how, codec, slot, len(data)) + data


def frame(data):
    return U32.pack(len(data)) + data


def json_record(kind, fields, head=b""):
    return record(kind, head + json.dumps(fields, sort_keys=True).encode())


def records(data):
    """The records of a frame without its length, as pairs of a kind and the bytes of a body."""
    at, end = 0, len(data)
    while at < end:
        if end - at < RECORD.size:
            raise Garbage("a record's head ends outside its frame")
        length, kind = RECORD.unpack_from(data, at)
        at += RECORD.size
        if length > end - at:
            raise Garbage("record %d of %d bytes ends outside its frame" % (kind, length))
        yield kind, data[at : at + length]
        at += length


def values(body, at, count):
    """`count` values from `at` to the end of `body`: (how, codec, slot, bytes)."""
    found = []
    end = len(body)
    for _ in range(count):
        if end - at < 8:
            raise Garbage("a value's head ends outside its record")
        how, codec, slot, length = VALUE.unpack_from(body, at)
        at += 8
        if how > FILE or length > INLINE_MAX or length > end - at:
            raise Garbage("a value of %d bytes, form %d, is damaged" % (length, how))
        found.append((how, codec, slot, body[at : at + length]))
        at += length
    if at != end:
        raise Garbage("%d bytes after the last value" % (end - at))
    return found


def whole_frame(buffer):
    """The length of the frame at the start of `buffer` with its head; 0 if it is not whole."""
    if len(buffer) < 4:
        return 0
    (length,) = U32.unpack_from(buffer)
    if length > FRAME_MAX:
        raise Garbage("a frame of %d bytes, at most %d" % (length, FRAME_MAX))
    return 4 + length if len(buffer) >= 4 + length else 0


def read_frame(fd, buffer):
    """The next frame, or None at the end. `buffer`: a bytearray kept between calls."""
    while True:
        length = whole_frame(buffer)
        if length:
            data = bytes(buffer[4:length])
            del buffer[:length]
            return data
        more = os.read(fd, READ_BYTES)
        if not more:
            return None
        buffer += more


def write_all(fd, data):
    done = os.write(fd, data)
    if done < len(data):
        rest = memoryview(data)[done:]
        while rest:
            rest = rest[os.write(fd, rest) :]

"""Exceptions as error records, and the check that they can be unpickled."""

import json
import pickle
import traceback

from . import wire

TEXT_MAX = 16 << 10
FRAMES_MAX = 24 << 10


def error_value(kind, text, frames="", **more):
    fields = {"type": kind, "text": text[:TEXT_MAX], "frames": cut(frames, FRAMES_MAX)}
    fields.update(more)
    data = json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace")
    if len(data) > wire.INLINE_MAX:
        # Characters of several bytes.
        fields.update(text=text[:4000], frames=cut(frames, 4000))
        data = json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace")
    return wire.value(wire.INLINE, wire.JSON, 0, data)


def cut(text, most):
    """A text without its middle, if it is too long. A traceback keeps its first frames and its end."""
    half = most // 2
    return text if len(text) <= most else "%s\n[...]\n%s" % (text[:half], text[-half:])


def name_of(error):
    kind = type(error)
    module = kind.__module__
    return kind.__qualname__ if module == "builtins" else "%s.%s" % (module, kind.__qualname__)


def text_of(error):
    try:
        return str(error)
    except Exception as broken:
        return "<str() of the exception raised %s>" % name_of(broken)


def raised_values(error, skip):
    """The values of a call that raised. `skip`: frames of the worker itself."""
    trace = error.__traceback__
    for _ in range(skip):
        trace = trace.tb_next if trace is not None else None
    try:
        frames = "".join(traceback.format_exception(type(error), error, trace))
        if trace is None and error.__cause__ is None and error.__context__ is None:
            # The call itself has failed, as with wrong arguments: there is no frame of the function.
            frames = "Traceback (most recent call last):\n%s" % frames
    except Exception:
        frames = "%s: %s\n" % (name_of(error), text_of(error))
    found = [error_value(name_of(error), text_of(error), frames)]
    pickled = round_trip(error)
    if pickled is not None:
        found.append(wire.value(wire.INLINE, wire.PICKLE, 1, pickled))
    return found


def round_trip(error):
    """The pickled exception if it can be unpickled as the same class, else None."""
    try:
        try:
            data = pickle.dumps(error, 5)
        except Exception:
            from starling import _cloudpickle

            data = _cloudpickle.dumps(error, 5)
        again = pickle.loads(data)
        same = type(again) is type(error) and text_of(again) == text_of(error)
        return data if same and len(data) <= wire.INLINE_MAX else None
    except Exception:
        return None

"""Options of calls."""

import dataclasses
import functools
import re

from . import _wrappers

# Texts have the forms of workflow files: workloads/src/graph/quantity.rs.
SIZE_UNITS = {"": 1, "B": 1}
SIZE_UNITS.update(dict.fromkeys(("k", "kB", "KB"), 10**3))
SIZE_UNITS.update(dict.fromkeys(("M", "MB"), 10**6))
SIZE_UNITS.update(dict.fromkeys(("G", "GB"), 10**9))
SIZE_UNITS.update(dict.fromkeys(("T", "TB"), 10**12))
SIZE_UNITS.update({"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40})
TIME_UNITS_NS = {"ns": 1, "us": 10**3, "\u00b5s": 10**3, "ms": 10**6, "s": 10**9, "sec": 10**9}
TIME_UNITS_NS.update({"m": 60 * 10**9, "min": 60 * 10**9, "h": 3600 * 10**9, "d": 86400 * 10**9})
_NUMBER = r"(\d+\.?\d*|\.\d+)"
_SIZE = re.compile(_NUMBER + r"\s*([a-zA-Z]*)", re.ASCII)
_TIME = re.compile(_NUMBER + r"([a-zA-Z\u00b5]+)\s*", re.ASCII)
_MOST = 1 << 62


def size_bytes(value):
    """A number of bytes, or a text such as "8GiB"."""
    found = value
    if isinstance(value, str):
        match = _SIZE.fullmatch(value.strip())
        unit = None if match is None else SIZE_UNITS.get(match[2])
        found = None if unit is None else _whole(float(match[1]) * unit)
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found <= _MOST:
        raise ValueError("%r is no size; write 8GiB or a number of bytes" % (value,))
    return found


def duration_ns(value):
    """Nanoseconds of a number of seconds, or of a text such as "1h 30m"."""
    found = None
    if isinstance(value, str):
        found = _text_ns(value.strip())
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        found = value * 1e9
    if found is None or not 0 <= found <= _MOST:
        raise ValueError("%r is no duration; write 90s, 1h 30m or a number of seconds" % (value,))
    return _whole(found)


def _text_ns(text):
    if text == "0":
        return 0
    found, at = None, 0
    while at < len(text):
        match = _TIME.match(text, at)
        if match is None or match[2] not in TIME_UNITS_NS:
            return None
        found = (found or 0) + float(match[1]) * TIME_UNITS_NS[match[2]]
        at = match.end()
    return found


def _whole(number):
    """Halves are rounded up."""
    if number > _MOST:
        return number
    down = int(number)
    return down + (number - down >= 0.5)


def _exceptions(given):
    kinds = given if isinstance(given, (tuple, list)) else (given,)
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise TypeError("retry_on has exception classes, not %r" % (kind,))
    return tuple(kinds)


@dataclasses.dataclass(frozen=True)
class Options:
    """`cpus`: slots; `memory`: asked of the node, and the limit; `retries`: further attempts after
    a failed one; `time_limit`: of one attempt, in nanoseconds; `name`: shown instead of the
    function's name; `priority`: the highest starts first; `retry_on`: the exceptions after which
    the worker calls the function again, `retries` times at most, while all else fails the call at
    once; `isolate`: "call" runs the function in a fork of the worker.
    """

    cpus: int = 1
    memory: int = 0
    retries: int = 0
    time_limit: int = 0
    name: str = ""
    priority: int = 0
    retry_on: tuple = ()
    isolate: str = ""

    def changed(self, options):
        known = {field.name for field in dataclasses.fields(self)}
        for name in options:
            if name not in known:
                raise TypeError("no option %r; there are %s" % (name, ", ".join(sorted(known))))
        options = dict(options)
        if "memory" in options:
            options["memory"] = size_bytes(options["memory"])
        if "time_limit" in options:
            options["time_limit"] = duration_ns(options["time_limit"])
        priority = options.get("priority", 0)
        if not isinstance(priority, int) or isinstance(priority, bool) or abs(priority) >= 1 << 31:
            raise ValueError("priority is a whole number of 32 bits, not %r" % (priority,))
        for name, least in (("cpus", 1), ("retries", 0)):
            value = options.get(name, least)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError("%s is a whole number from %d on, not %r" % (name, least, value))
        if "retry_on" in options:
            options["retry_on"] = _exceptions(options["retry_on"])
        if options.get("isolate", "") not in ("", None, "call"):
            raise ValueError('isolate is "call" or None, not %r' % (options["isolate"],))
        if "isolate" in options:
            options["isolate"] = options["isolate"] or ""
        return dataclasses.replace(self, **options)

    def wrapped(self, fn):
        """What the worker calls for `fn`."""
        if self.isolate:
            fn = functools.partial(_wrappers.isolated, fn)
        if self.retry_on and self.retries:
            fn = functools.partial(_wrappers.retried, fn, self.retry_on, self.retries)
        return fn

    def fields(self, kind):
        return {
            "kind": kind,
            # Lists of tasks have names alone.
            "name": self.name or kind,
            "cpus": self.cpus,
            "memory_bytes": self.memory,
            # With `retry_on` the worker repeats.
            "retries": 0 if self.retry_on else self.retries,
            "time_limit_ns": self.time_limit,
            "priority": self.priority,
        }

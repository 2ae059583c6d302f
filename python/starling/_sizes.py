"""Sizes and durations as texts."""

import re

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

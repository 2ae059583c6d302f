"""Options of calls."""

import dataclasses
import re

_SIZES = {"": 1, "b": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_SIZES.update({"ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40})
_TIMES = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def size_bytes(value):
    """A number of bytes, or a text such as "8GiB"."""
    if isinstance(value, int) and not isinstance(value, bool):
        found = value
    else:
        match = re.fullmatch(r"\s*([0-9.]+)\s*([kmgt]?i?)b?\s*", str(value).lower())
        if match is None or match[2] not in _SIZES:
            raise ValueError("%r is no size; write 8GiB or a number of bytes" % (value,))
        found = int(float(match[1]) * _SIZES[match[2]])
    if found < 0:
        raise ValueError("a size is not negative: %r" % (value,))
    return found


def seconds(value):
    """A number of seconds, or a text such as "1h 30m"."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        found = float(value)
    else:
        text = str(value).lower().replace(" ", "")
        parts = re.findall(r"([0-9.]+)(ms|[smhd])", text)
        if not parts or "".join(a + b for a, b in parts) != text:
            raise ValueError("%r is no duration; write 90s, 1h 30m or a number of seconds" % (value,))
        found = sum(float(number) * _TIMES[unit] for number, unit in parts)
    if not 0 < found < 1e9:
        raise ValueError("a duration is positive: %r" % (value,))
    return found


@dataclasses.dataclass(frozen=True)
class Options:
    """`cpus`: slots; `memory`: asked of the node, and the limit; `retries`: further attempts after
    a failed one; `time_limit`: of one attempt; `name`: shown instead of the function's name.
    """

    cpus: int = 1
    memory: int = 0
    retries: int = 0
    time_limit: float = 0.0
    name: str = ""

    def changed(self, options):
        known = {field.name for field in dataclasses.fields(self)}
        for name in options:
            if name not in known:
                raise TypeError("no option %r; there are %s" % (name, ", ".join(sorted(known))))
        options = dict(options)
        if "memory" in options:
            options["memory"] = size_bytes(options["memory"])
        if options.get("time_limit"):
            options["time_limit"] = seconds(options["time_limit"])
        for name, least in (("cpus", 1), ("retries", 0)):
            value = options.get(name, least)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError("%s is a whole number from %d on, not %r" % (name, least, value))
        return dataclasses.replace(self, **options)

    def fields(self, kind):
        return {
            "kind": kind,
            "name": self.name,
            "cpus": self.cpus,
            "memory_bytes": self.memory,
            "retries": self.retries,
            "time_limit_ns": int(self.time_limit * 1e9),
        }

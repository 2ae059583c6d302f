"""Options of calls."""

import dataclasses
import functools
import re

from . import _wrappers
from ._runtime import Runtime
from ._sizes import duration_ns, size_bytes


def _exceptions(given):
    kinds = given if isinstance(given, (tuple, list)) else (given,)
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise TypeError("retry_on has exception classes, not %r" % (kind,))
    return tuple(kinds)


# As in workflow files.
COPIES_MAX = 5

_NAME = re.compile(r"[^\s,=|]+")
_AMOUNT = re.compile(r"(all|[0-9]+(\.[0-9]{1,4})?)(\s+(compact|tight|scatter)!?)?")
# They have options of their own.
_OF_OPTIONS = ("cpus", "memory", "label", "weight")


def _amount(name, given):
    """An amount of a resource as text: `1`, `0.5`, `all`, `2 compact!`."""
    if isinstance(given, str) and _AMOUNT.fullmatch(given.strip()):
        return given.strip()
    if isinstance(given, (int, float)) and not isinstance(given, bool) and 0 <= given < 1e12:
        text = ("%.4f" % given).rstrip("0").rstrip(".")
        if abs(float(text) - given) < 1e-9:
            return text
    raise ValueError("%s is an amount with at most four decimals, not %r" % (name, given))


def _resources(given):
    """Amounts by name, as pairs of texts; an amount of zero is none."""
    if not isinstance(given, dict):
        raise TypeError("resources is a dict of amounts by name, not %r" % (given,))
    for name in given:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError("%r is no name of a resource" % (name,))
        if name in _OF_OPTIONS:
            raise ValueError("resources has no %r: there is an option of its own" % name)
    pairs = ((name, _amount(name, amount)) for name, amount in sorted(given.items()))
    return tuple((name, amount) for name, amount in pairs if amount != "0")


def _labels(given):
    names = (given,) if isinstance(given, str) else tuple(given)
    for name in names:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError("%r is no label" % (name,))
    return names


@dataclasses.dataclass(frozen=True)
class Options:
    """`cpus`: slots; `memory`: asked of the node, and the limit; `gpus`: GPUs or a part of one, of
    any vendor; `resources`: further amounts by name, such as `{"gpus/amd": 1, "licence": 2}`;
    `labels`: those of the node; `retries`: further attempts after
    a failed one; `time_limit`: of one attempt, in nanoseconds; `name`: shown instead of the
    function's name; `priority`: the highest starts first; `retry_on`: the exceptions after which
    the worker calls the function again, `retries` times at most, while all else fails the call at
    once; `isolate`: "call" runs the function in a fork of the worker; `copies`: the nodes that have
    the result before the call counts as done, 1 to 5; `runtime`: a `Runtime` for its worker.
    """

    cpus: int = 1
    memory: int = 0
    gpus: str = ""
    resources: tuple = ()
    labels: tuple = ()
    retries: int = 0
    time_limit: int = 0
    name: str = ""
    priority: int = 0
    retry_on: tuple = ()
    isolate: str = ""
    copies: int = 1
    runtime: object = None

    def changed(self, options):
        known = {field.name for field in dataclasses.fields(self)}
        for name in options:
            if name not in known:
                raise TypeError("no option %r; there are %s" % (name, ", ".join(sorted(known))))
        options = dict(options)
        if "memory" in options:
            options["memory"] = size_bytes(options["memory"])
        if "time_limit" in options:
            given = options["time_limit"]
            options["time_limit"] = 0 if given is None else duration_ns(given)
            if given is not None and options["time_limit"] == 0:
                raise ValueError("time_limit is longer than 0, not %r; None is no limit" % (given,))
        priority = options.get("priority", 0)
        if not isinstance(priority, int) or isinstance(priority, bool) or abs(priority) >= 1 << 31:
            raise ValueError("priority is a whole number of 32 bits, not %r" % (priority,))
        for name, least in (("cpus", 1), ("retries", 0), ("copies", 1)):
            value = options.get(name, least)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError("%s is a whole number from %d on, not %r" % (name, least, value))
        if options.get("copies", 1) > COPIES_MAX:
            raise ValueError("copies is at most %d, not %r" % (COPIES_MAX, options["copies"]))
        if "gpus" in options:
            gpus = options["gpus"]
            gpus = "0" if gpus is None else _amount("gpus", gpus)
            options["gpus"] = "" if gpus == "0" else gpus
        if "resources" in options:
            options["resources"] = _resources(options["resources"] or {})
        if "labels" in options:
            options["labels"] = _labels(options["labels"] or ())
        if not isinstance(options.get("runtime"), (Runtime, type(None))):
            raise TypeError("runtime is a starling.Runtime, not %r" % (options["runtime"],))
        if "retry_on" in options:
            options["retry_on"] = _exceptions(options["retry_on"])
        if options.get("isolate", "") not in ("", None, "call"):
            raise ValueError('isolate is "call" or None, not %r' % (options["isolate"],))
        if "isolate" in options:
            options["isolate"] = options["isolate"] or ""
        made = dataclasses.replace(self, **options)
        made._further()
        return made

    def wrapped(self, fn):
        """What the worker calls for `fn`."""
        if self.isolate:
            fn = functools.partial(_wrappers.isolated, fn)
        if self.runtime is not None:
            fn = self.runtime._wrapped(fn)
        if self.retry_on and self.retries:
            fn = functools.partial(_wrappers.retried, fn, self.retry_on, self.retries)
        return fn

    def may_be_refused(self):
        """Whether there may be no node for such a call."""
        asked = self.memory or (self.runtime and self.runtime.memory) or self._further()
        return self.cpus > 1 or bool(asked)

    def _further(self):
        """What is asked for beside cpus and memory, in the words of `--variant`."""
        named = dict(self.resources)
        if self.gpus:
            if "gpus" in named:
                raise ValueError("gpus is given twice: by gpus= and in resources=")
            named["gpus"] = self.gpus
        needs = ["%s=%s" % pair for pair in named.items()]
        return ", ".join(needs + ["label=%s" % label for label in self.labels])

    def fields(self, kind):
        return {
            "kind": kind,
            # Lists of tasks have names alone.
            "name": self.name or kind,
            "cpus": self.cpus,
            "resources": self._further(),
            "memory_bytes": self.memory or (self.runtime.memory if self.runtime else 0),
            # With `retry_on` the worker repeats.
            "retries": 0 if self.retry_on else self.retries,
            "time_limit_ns": self.time_limit,
            "priority": self.priority,
            "replicas": self.copies if self.copies > 1 else 0,
        }


def silence(on_silence, silent_after):
    """The seconds until a client counts as silent, and whether its job is cancelled then."""
    if on_silence not in ("close", "cancel"):
        raise ValueError("on_silence is %r, and can be 'close' or 'cancel'" % (on_silence,))
    try:
        seconds = float(silent_after)
    except (TypeError, ValueError):
        raise TypeError("silent_after is a number of seconds, not %r" % (silent_after,)) from None
    if not 1 <= seconds <= 1e9:
        raise ValueError("silent_after is %s s, and can be 1 s to 1e9 s" % silent_after)
    return seconds, on_silence == "cancel"

"""Starling from Python: functions as tasks, futures as edges that carry data.

See docs/python.md. Workers have this package without its extension module: in calls there are
`current_task`, `context` and `note`, and the names of the client load on first use.
"""

from ._worker.context import context, current_task, note
from ._worker.context import slot as _slot

_LAZY = {
    "Client": "_client",
    "Environment": "_environment",
    "attach": "_client",
    "LocalCluster": "_cluster",
    "Executor": "_executor",
    "Future": "_future",
    "Map": "_map",
    "Runtime": "_runtime",
    "as_completed": "_map",
    "wait": "_map",
    "File": "_files",
    "gather": "_values",
    "out": "_command",
    "progress": "_progress",
    "task": "_task",
    "CallFailed": "_errors",
    "CallRefused": "_errors",
    "CannotPickle": "_errors",
    "ClientClosed": "_errors",
    "ClusterError": "_errors",
    "DependencyError": "_errors",
    "NoBinary": "_errors",
    "RemoteError": "_errors",
    "RemoteTraceback": "_errors",
    "ResultLost": "_errors",
    "StarlingError": "_errors",
    "TooLarge": "_errors",
    "WouldDeadlock": "_errors",
}

__all__ = ["context", "current_task", "note", *_LAZY]


def __getattr__(name):
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError("module %r has no attribute %r" % (__name__, name))
    import importlib

    found = getattr(importlib.import_module("." + module, __name__), name)
    globals()[name] = found
    return found


def __dir__():
    return sorted(__all__)

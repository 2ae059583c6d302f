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
    "gather": "_values",
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

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._client import Client as Client
    from ._client import attach as attach
    from ._cluster import LocalCluster as LocalCluster
    from ._environment import Environment as Environment
    from ._errors import CallFailed as CallFailed
    from ._errors import CallRefused as CallRefused
    from ._errors import CannotPickle as CannotPickle
    from ._errors import ClientClosed as ClientClosed
    from ._errors import ClusterError as ClusterError
    from ._errors import DependencyError as DependencyError
    from ._errors import NoBinary as NoBinary
    from ._errors import RemoteError as RemoteError
    from ._errors import RemoteTraceback as RemoteTraceback
    from ._errors import ResultLost as ResultLost
    from ._errors import StarlingError as StarlingError
    from ._errors import TooLarge as TooLarge
    from ._errors import WouldDeadlock as WouldDeadlock
    from ._executor import Executor as Executor
    from ._future import Future as Future
    from ._map import Map as Map
    from ._map import as_completed as as_completed
    from ._map import wait as wait
    from ._progress import progress as progress
    from ._runtime import Runtime as Runtime
    from ._task import task as task
    from ._values import gather as gather


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

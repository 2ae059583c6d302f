"""Starling from Python: functions as tasks, futures as edges.

In a worker this package has only `_worker` and `_cloudpickle`. Names of the client load on first use.
"""

from ._worker.context import context, current_task, note
from ._worker.context import slot as _slot

__all__ = ["context", "current_task", "note"]

"""executorlib's own tests with the executor of Starling in the place of its `SingleNodeExecutor`.

    PYTHONPATH=.../target/python pytest -p tests.harness.executorlib_plugin \
        tests/unit/executor/test_single_dependencies.py \
        tests/unit/executor/test_single_noblock.py tests/integration/test_pyiron_workflow.py

The files are in executorlib's repository. They share one local cluster for each number of slots.
"""

import functools

import executorlib

import starling
import starling.executorlib


@functools.cache
def cluster(slots):
    found = starling.LocalCluster(nodes=1, slots=slots)
    found.__enter__()
    return found


class SharedClusters(starling.executorlib.Executor):
    def __init__(self, max_workers=None, *, max_cores=None, **others):
        client = cluster(max_cores or max_workers or 2).client()
        super().__init__(max_workers, max_cores=max_cores, client=client, **others)
        self._owned = client


executorlib.SingleNodeExecutor = SharedClusters

"""The client of the harnesses: a local cluster of two nodes.

`CLIENT=workers` has workers without nodes, and `CLIENT=fake` this process.
"""

import functools
import os

import starling


@functools.cache
def client():
    if os.environ.get("CLIENT") == "fake":
        from tests.fake_core import Core

        return starling.Client(name="harness", _core=Core(workers=4))
    if os.environ.get("CLIENT") == "workers":
        from tests.worker_core import Core

        return starling.Client(name="harness", _core=Core(workers=4))
    cluster = starling.LocalCluster(nodes=2, slots=2)
    # For the children of this process.
    os.environ["STARLING_DIR"] = cluster.dir
    return cluster.client()

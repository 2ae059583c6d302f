"""CPython's own tests of `concurrent.futures` for `starling.Executor`, by hand.

    CPYTEST=/usr/lib/python3.11/test python3 -m tests.cpython_executor

CPYTEST has `test_concurrent_futures.py` of CPython 3.11 (package libpython3.11-testsuite). Three of
its 28 tests cannot pass for any other executor: they import it by name from the standard library.
With `EXECUTOR=fake` the calls run in this process, and no node is needed.
"""

import importlib
import os
import time
import unittest

import test

from . import node  # noqa: F401 (it sets the path)
import starling
from starling import _cloudpickle

test.__path__.insert(0, os.environ["CPYTEST"])
T = importlib.import_module("test.test_concurrent_futures")
# Workers do not have the module.
_cloudpickle.register_pickle_by_value(T)


def make(max_workers=None):
    if os.environ.get("EXECUTOR") == "fake":
        from .fake_core import Core

        client = starling.Client(_core=Core(workers=max_workers or 2))
        return starling.Executor(max_workers, client=client)
    return starling.Executor(max_workers)


class Mixin(T.ExecutorMixin):
    executor_type = staticmethod(make)

    def setUp(self):
        unittest.TestCase.setUp(self)
        self.t1 = time.monotonic()
        self.executor = make(max_workers=self.worker_count)

    def tearDown(self):
        self.executor.shutdown(wait=True)
        self.executor = None


class TestWait(Mixin, T.WaitTests, T.BaseTestCase):
    pass


class TestAsCompleted(Mixin, T.AsCompletedTests, T.BaseTestCase):
    pass


class TestExecutor(Mixin, T.ExecutorTest, T.BaseTestCase):
    pass


class TestShutdown(Mixin, T.ExecutorShutdownTest, T.BaseTestCase):
    pass


if __name__ == "__main__":
    unittest.main(verbosity=2)

"""What goes wrong outside the function of a call: each has its exception, and nothing hangs."""

import concurrent.futures
import glob
import io
import os
import shutil
import signal
import sys
import threading
import time
import types
import unittest
from unittest import mock

from . import node  # noqa: F401 (it sets the path)
import starling
from .test_end_to_end import _missing

WAIT = 120


def other_python():
    """A Python of another version; None if there is none."""
    names = ["python3.%d" % minor for minor in range(8, 20) if minor != sys.version_info[1]]
    found = [path for path in map(shutil.which, names) if path and "shims" not in path]
    pyenv = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))
    for name in names:
        version = name[len("python") :]
        found += glob.glob(os.path.join(pyenv, "versions", version + ".*", "bin", name))
    return found[0] if found else None


def module_here(name):
    """A module of this process that no worker has."""
    module = types.ModuleType(name)
    exec("def f():\n    return 1\n\nclass C:\n    pass\n", module.__dict__)
    sys.modules[name] = module
    return module


@unittest.skipIf(_missing is not None, _missing)
class BadInput(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = starling.LocalCluster(nodes=1, slots=2)
        cls.cluster.__enter__()
        cls.addClassCleanup(cls.cluster.close)
        cls.client = cls.cluster.client()

    def failure(self, kind, future):
        with self.assertRaises(kind) as caught:
            future.result(WAIT)
        return caught.exception

    def test_an_argument_that_cannot_be_pickled(self):
        with self.assertRaises(starling.CannotPickle) as caught:
            self.client.submit(len, [{"model": threading.Lock()}])
        self.assertEqual(caught.exception.path, "args[0][0]['model']")

    def test_a_result_that_cannot_be_pickled(self):
        for options in ({}, {"isolate": "call"}):
            bound = self.client.options(**options)
            error = self.failure(
                starling.CannotPickle, bound.submit(lambda: {"model": threading.Lock()})
            )
            self.assertEqual(error.path, "result['model']")
            self.assertIn("result['model']", str(error))

    def test_another_python(self):
        python = other_python()
        if python is None:
            self.skipTest("there is one version of Python")
        with self.cluster.client(python=python) as client:
            error = self.failure(starling.CallRefused, client.submit(abs, -1))
        for part in ("was pickled by Python", "on node n0", python, "of the client's version"):
            self.assertIn(part, str(error))

    def test_a_module_that_is_missing(self):
        module = module_here("nowhere_but_here")
        # A reference: the module is no file beside the script.
        for future in (self.client.submit(module.f), self.client.submit(repr, module.C)):
            error = self.failure(starling.CallRefused, future)
            for part in ("nowhere_but_here", "on node n0", "Install the module there"):
                self.assertIn(part, str(error))

    def test_a_runtime_that_cannot_start(self):
        for options in ({"python": "/nowhere/python3"}, {"preload": ["nowhere_to_load"]}):
            with self.cluster.client(**options) as client:
                error = self.failure(starling.CallRefused, client.submit(abs, -1))
            self.assertIn("nowhere", str(error))

    def test_needs_that_no_node_has(self):
        """The call is refused where it is submitted, and the client goes on."""
        with self.cluster.client() as client:
            before = client.submit(time.sleep, 1)
            for options in ({"cpus": 64}, {"memory": "1000TiB"}, {"cpus": 64}):
                with self.assertRaises(starling.ClusterError) as caught:
                    client.options(**options).submit(abs, -1)
                self.assertIn("needs" if "cpus" in options else "memory", str(caught.exception))
            runtime = starling.Runtime(memory="1000TiB")
            with self.assertRaises(starling.ClusterError):
                client.options(runtime=runtime).submit(abs, -1)
            fits = client.options(memory="10MiB").submit(abs, before)
            self.assertIsInstance(fits.exception(WAIT), TypeError)
            self.assertEqual(client.submit(abs, -2).result(WAIT), 2)
            self.assertIsNone(before.result(WAIT))

    def test_more_memory_than_asked(self):
        def fill():
            kept = bytearray(400 << 20)
            time.sleep(WAIT)
            return len(kept)

        future = self.client.options(memory="150MiB").submit(fill)
        error = self.failure(starling.CallFailed, future)
        self.assertRegex(str(error), r"^memory: .* of 150 MiB asked$")
        self.assertNotIsInstance(error, starling.CallRefused)

    def test_a_cancelled_input(self):
        f = self.client.submit(time.sleep, 600)
        g = self.client.submit(abs, f)
        h = self.client.submit(abs, g)
        self.assertTrue(f.cancel(kill=True))
        for future in (f, g, h):
            self.failure(concurrent.futures.CancelledError, future)

    def test_a_closed_client(self):
        client = self.cluster.client()
        client.submit(abs, -1).result(WAIT)
        future = client.submit(time.sleep, 5)
        client.close()
        self.failure(starling.ClientClosed, future)
        for use in (client.submit, client.map, client.options(cpus=1).submit):
            with self.assertRaises(starling.ClientClosed):
                use(abs, [1])
        with self.assertRaises(starling.ClientClosed):
            client.put(1)


def node_of_this_call():
    """The process of the node that runs this call."""
    pid = os.getpid()
    while True:
        with open("/proc/%d/stat" % pid) as file:
            pid = int(file.read().rpartition(")")[2].split()[1])
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            words = file.read().split(b"\0")
        if b"node" in words or pid <= 1:
            return pid


class Measures(unittest.TestCase):
    def test_a_measure_of_failed_calls_or_of_nothing_is_refused(self):
        from starling import bench

        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            with mock.patch.object(bench, "noop", lambda: 1 // 0):
                self.assertRaises(ZeroDivisionError, bench.Pool("threads", pool).calls, 3)
        for option in ("--nodes", "--slots", "--levels"):
            with mock.patch("sys.stderr", io.StringIO()) as told:
                self.assertRaises(SystemExit, bench.main, [option, "0"])
            self.assertIn("at least 1", told.getvalue())


@unittest.skipIf(_missing is not None, _missing)
class DeadNode(unittest.TestCase):
    def test_a_node_that_dies_is_not_seen_by_its_calls(self):
        with starling.LocalCluster(nodes=3, slots=1) as cluster, cluster.client() as client:
            inputs = [client.submit(lambda k: [k] * 5000, k) for k in range(6)]
            sums = [client.submit(sum, value) for value in inputs]
            self.assertEqual([s.result(WAIT) for s in sums], [5000 * k for k in range(6)])
            slow = [client.submit(lambda k: time.sleep(2) or k, k) for k in range(3)]
            pid = client.submit(node_of_this_call).result(WAIT)
            self.assertGreater(pid, 1)
            os.kill(pid, signal.SIGKILL)
            self.assertEqual([future.result(WAIT) for future in slow], [0, 1, 2])
            # Results that were on the dead node are made again for their readers.
            again = [client.submit(len, value) for value in inputs]
            self.assertEqual([value.result(WAIT) for value in again], [5000] * 6)


if __name__ == "__main__":
    unittest.main()

"""Calls that submit calls, on real nodes."""

import glob
import os
import sys
import tempfile
import time
import unittest

from . import node  # noqa: F401 (it sets the path)
import starling
from .test_end_to_end import _missing

WAIT = 240


def depth(n):
    import starling

    return 0 if n == 0 else 1 + starling.Client().submit(depth, n - 1).result()


def fibonacci(n):
    import starling

    if n < 2:
        return n
    client = starling.Client()
    return sum(future.result() for future in client.map(fibonacci, [n - 1, n - 2]))


def uses_all(n):
    import starling

    client = starling.Client()
    big = client.put(list(range(n)))
    sizes = [client.submit(len, big), client.submit(lambda values: bytes(100_000), big)]
    done, _ = starling.wait(sizes)
    try:
        client.submit(int, "no number").result()
    except ValueError as error:
        return len(done), sizes[0].result(), len(sizes[1].result()), str(error), client.job


def starts_a_child(directory):
    import os

    import starling

    def child():
        import time

        open(os.path.join(directory, "begun"), "w").close()
        try:
            time.sleep(600)
        finally:
            open(os.path.join(directory, "ended"), "w").close()

    return starling.Client().submit(child).result()


def needs_another_worker(n):
    import starling

    if n == 0:
        return 0
    # Another environment, so that no worker that waits can run it.
    client = starling.Client(env={"LEVEL": str(n)})
    return 1 + client.submit(needs_another_worker, n - 1).result()


def dies_below(n):
    import os

    import starling

    if n == 0:
        os._exit(7)
    try:
        starling.Client().submit(dies_below, n - 1).result()
    except starling.CallFailed as error:
        return str(error)


def tells_of_the_crash(n):
    import starling

    try:
        return starling.Client().submit(tells_of_the_crash if n else crashes, n - 1).result()
    except starling.CallFailed as error:
        return n, str(error)


def crashes(_):
    import os

    os._exit(7)


def makes():
    import starling

    starling.context()["made"] = "by init"


def sees_what_was_made(n):
    import starling

    if n == 0:
        return starling.context().get("made")
    with starling.Executor(2) as pool:
        return list(pool.map(sees_what_was_made, [n - 1] * 3))


def prints_and_returns_much():
    import starling

    def child():
        print("x" * 200_000)
        return bytes(300_000)

    future = starling.Client().submit(child)
    return len(future.result()), len(future.stdout)


def leaves_a_call_open(directory):
    import starling

    def late():
        import time

        time.sleep(600)

    future = starling.Client().submit(late)
    return future._client.job


def until(path):
    end = time.monotonic() + WAIT
    while not os.path.exists(path):
        if time.monotonic() > end:
            raise TimeoutError(path)
        time.sleep(0.02)


@unittest.skipIf(_missing is not None, _missing)
class OneSlot(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = starling.LocalCluster(nodes=1, slots=1)
        cls.cluster.__enter__()
        cls.addClassCleanup(cls.cluster.close)
        cls.client = cls.cluster.client()

    def test_a_recursion_of_depth_50(self):
        started = time.monotonic()
        self.assertEqual(self.client.submit(depth, 50).result(WAIT), 50)
        print("recursion of depth 50: %.1f s" % (time.monotonic() - started), file=sys.stderr)

    def test_many_parents_at_once(self):
        found = [future.result(WAIT) for future in self.client.map(depth, [2] * 8)]
        self.assertEqual(found, [2] * 8)

    def test_a_tree(self):
        self.assertEqual(self.client.submit(fibonacci, 6).result(WAIT), 8)

    def test_all_that_a_client_does(self):
        found = self.client.submit(uses_all, 50_000).result(WAIT)
        self.assertEqual(found[:3], (2, 50_000, 100_000))
        self.assertIn("invalid literal", found[3])
        self.assertNotEqual(found[4], self.client.job)

    def test_its_calls_are_cancelled_with_it(self):
        with tempfile.TemporaryDirectory() as directory:
            future = self.client.submit(starts_a_child, directory)
            until(os.path.join(directory, "begun"))
            self.assertTrue(future.cancel(kill=True))
            until(os.path.join(directory, "ended"))
        self.assertEqual(self.client.submit(depth, 1).result(WAIT), 1, "the slot is free")

    def test_what_it_leaves_open_ends_with_it(self):
        self.client.submit(leaves_a_call_open, "").result(WAIT)
        self.assertEqual(self.client.submit(abs, -1).result(WAIT), 1, "the slot is free")

    def test_a_crash_fails_the_nested_call(self):
        self.assertIn("exited with code 7", self.client.submit(dies_below, 1).result(WAIT))

    def test_a_crash_on_top_of_waiting_calls_fails_the_call_that_submitted_it(self):
        n, error = self.client.submit(tells_of_the_crash, 1).result(WAIT)
        self.assertIn("exited with code 7", error)
        self.assertEqual(n, 0)

    def test_an_executor_in_a_call_and_the_init_of_its_runtime(self):
        with self.cluster.client(runtime=starling.Runtime(init=makes, memory="200MiB")) as client:
            found = client.submit(sees_what_was_made, 1).result(WAIT)
        self.assertEqual(found, ["by init"] * 3)

    def test_large_answers_leave_no_files(self):
        found = self.client.submit(prints_and_returns_much).result(WAIT)
        self.assertEqual(found, (300_000, 200_001))
        pattern = os.path.join(self.cluster.dir, "**", "results", "*")
        names = [os.path.basename(path) for path in glob.glob(pattern, recursive=True)]
        self.assertIn("worker.zip", names)
        self.assertEqual([name for name in names if name.startswith(("nested-", "ask-"))], [])

    def test_a_wait_that_cannot_end_raises(self):
        with self.assertRaises(starling.WouldDeadlock):
            self.client.submit(needs_another_worker, 20).result(WAIT)
        self.assertEqual(self.client.submit(depth, 1).result(WAIT), 1)


@unittest.skipIf(_missing is not None, _missing)
class TwoNodes(unittest.TestCase):
    def test_trees_on_several_nodes(self):
        with starling.LocalCluster(nodes=2, slots=2) as cluster, cluster.client() as client:
            found = [future.result(WAIT) for future in client.map(fibonacci, [5, 4, 3, 5])]
            self.assertEqual(found, [5, 3, 2, 5])


if __name__ == "__main__":
    unittest.main()

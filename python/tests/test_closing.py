"""The end of a client over a core in this process: close, detach, and attach."""

import concurrent.futures
import os
import unittest

from . import node  # noqa: F401 (it sets the path)
from .fake_core import Core
from .test_client import add, client, hold

import starling


class Closing(unittest.TestCase):
    def test_closed(self):
        here = client()
        slow, _ = hold(self, here.submit)
        behind = here.submit(add, 1)
        done = client()
        done.close()
        here.close()
        for future in (slow, behind):
            with self.assertRaises(starling.ClientClosed):
                future.result(1)
        with self.assertRaises(starling.ClientClosed):
            here.submit(add, 1)
        self.assertEqual(repr(here), "<Client closed>")
        self.assertTrue(here._core.is_closed)

    def test_results_that_came_stay(self):
        with client() as here:
            future = here.submit(add, 1)
            concurrent.futures.wait([future], 10)
        self.assertEqual(future.result(), 2)

    def test_detach_and_attach(self):
        core = Core()
        first = starling.Client(name="test", _core=core)
        done = first.submit(add, 1)
        self.assertEqual(done.result(10), 2)
        large = first.options(name="large").submit(lambda: bytes(10_000))
        failed = first.submit(add, None)
        put = first.put(os.urandom(5000))
        concurrent.futures.wait([large, failed, put], 10)
        slow, gate = hold(self, first.submit)
        job = first.detach()
        self.assertEqual(job, 1)
        with self.assertRaisesRegex(starling.ClientClosed, "detached from job 1"):
            slow.result(1)
        with self.assertRaises(starling.ClientClosed):
            first.submit(add, 1)
        self.assertEqual((core.released, core.detached), ([], [1]))
        second = starling.Client(name="test", _core=core)
        second._attach(job)
        self.addCleanup(second.close)
        found = second.futures()
        self.assertEqual([future._name for future in found[:2]], ["add", "large"])
        self.assertEqual(len(found), 4)
        self.assertEqual((found[0].result(10), len(found[1].result(10))), (2, 10_000))
        with self.assertRaises(starling.RemoteError):
            found[2].result(10)
        self.assertFalse(found[3].done())
        after = second.submit(len, found[3])
        gate.open()
        self.assertEqual(found[3].result(10), bytes(1))
        self.assertEqual(after.result(10), 1)

    def test_a_closed_job_is_read(self):
        core = Core()
        first = starling.Client(name="test", _core=core)
        done, lost = first.submit(add, 1), first.submit(lambda: bytes(10_000))
        failed = first.submit(add, None)
        concurrent.futures.wait([done, lost, failed], 10)
        first.close()
        core.lose(lost._local)
        second = starling.Client(name="test", _core=core)
        second._attach(1)
        self.addCleanup(second.close)
        found = second.futures()
        self.assertEqual(found[0].result(10), 2)
        with self.assertRaises(starling.RemoteError):
            found[2].result(10)
        with self.assertRaisesRegex(starling.ResultLost, "no object.*job 1 is closed"):
            found[1].result(10)
        with self.assertRaisesRegex(starling.ClusterError, "closed: no call can be added"):
            second.submit(add, 1)

    def test_names_of_tasks(self):
        core = Core()
        first = starling.Client(name="test", _core=core)
        first.submit(add, 1).result(10)
        first.options(name="put").submit(add, 1).result(10)
        first.put(5).result(10)
        second = starling.Client(name="test", _core=core)
        second._attach(first.detach())
        self.addCleanup(second.close)
        self.assertEqual([future._name for future in second.futures()], ["add", "put"])
        self.assertEqual([name for _, name in core.tasks(1)], ["add", "put", "<put>"])

    def test_an_attach_that_fails_closes_its_client(self):
        here = client()
        with self.assertRaises(IndexError):
            here._attach(7)
        with self.assertRaises(starling.ClientClosed):
            here.submit(add, 1)
        self.assertTrue(here._core.is_closed)

    def test_no_call_is_added_while_the_client_closes(self):
        for end in (starling.Client.close, starling.Client.detach):
            here = client()
            here.submit(add, 1).result(10)
            spec = here._spec

            def closes(*args):
                end(here)
                return spec(*args)

            here._spec = closes
            with self.assertRaises(starling.ClientClosed):
                here.submit(add, 1)
            self.assertEqual(here._job.next, 1)

    def test_what_a_silence_does_is_chosen_by_the_client(self):
        for options, expected in (
            ({}, (60.0, False)),
            ({"on_silence": "close", "silent_after": 5}, (5.0, False)),
            ({"on_silence": "cancel"}, (60.0, True)),
        ):
            core = Core()
            here = starling.Client(_core=core, **options)
            self.addCleanup(here.close)
            self.assertEqual(here.submit(add, 1).result(10), 2)
            self.assertEqual(core.silence, expected)
        for wrong, error in (
            ({"on_silence": "kill"}, ValueError),
            ({"silent_after": 0}, ValueError),
            ({"silent_after": float("nan")}, ValueError),
            ({"silent_after": "soon"}, TypeError),
        ):
            with self.assertRaises(error, msg=wrong):
                starling.Client(_core=Core(), **wrong)

    def test_detach_releases_what_is_not_in_use(self):
        here = client()
        kept = here.submit(add, 1)
        kept.result(10)
        del kept
        here.detach()
        self.assertEqual(here._core.released, [1])

    def test_a_fork_has_no_client(self):
        here = client()
        self.addCleanup(here.close)
        here.submit(add, 1).result(10)
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                here.submit(add, 1)
            except starling.ClientClosed:
                os.write(writer, b"closed")
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        self.assertEqual(os.read(reader, 100), b"closed")
        os.close(reader)
        os.close(writer)

    def test_shown(self):
        with client() as here:
            self.assertIn("1 nodes with 2 slots", repr(here))
            self.assertIn("<table>", here._repr_html_())
            self.assertIn("&lt;Future", here.submit(add, 1)._repr_html_())


if __name__ == "__main__":
    unittest.main()

"""The Python layer over a core in this process."""

import asyncio
import concurrent.futures
import functools
import gc
import itertools
import os
import pickle
import re
import sys
import threading
import time
import unittest
import unittest.mock

from . import node  # noqa: F401 (it sets the path)
from .fake_core import Core, Gate

import starling
from starling import _pickling
from starling._options import Options
from starling._sizes import SIZE_UNITS, TIME_UNITS_NS, duration_ns, size_bytes


WAIT = 600


def client(**options):
    return starling.Client(name="test", _core=Core(**options))


def hold(case, submit):
    """The future of a call that runs until its gate is opened, and the gate."""
    gate = Gate()
    case.addCleanup(gate.open)
    return submit(gate.call, gate.fd, 1), gate


def add(a, b=1):
    return a + b


@starling.task(cpus=2)
def double(x):
    return 2 * x


class Calls(unittest.TestCase):
    def setUp(self):
        self.client = client()
        self.addCleanup(self.client.close)

    def test_submit(self):
        future = self.client.submit(add, 2, b=3)
        self.assertIsInstance(future, concurrent.futures.Future)
        self.assertEqual(future.result(10), 5)
        self.assertEqual(future.task, "1.0.1")
        self.assertIn("done", repr(future))
        with self.assertRaises(TypeError):
            self.client.submit(5)

    def test_the_bytes_of_a_result(self):
        class Trap:
            def __reduce__(self):
                return add, ("unpickled", 1)

        for made in (client(), client(is_inline=False)):
            self.addCleanup(made.close)
            future = made.submit(Trap)
            self.assertIn(b"unpickled", made.raw(future, 10))
            with self.assertRaises(TypeError):
                future.result(10)
            self.assertEqual(pickle.loads(made.submit(add, 2).raw(10)), 3)
            with self.assertRaises(ZeroDivisionError):
                made.submit(divmod, 1, 0).raw(10)

    def test_a_read_has_the_rest_of_the_timeout(self):
        made = client(is_inline=False)
        self.addCleanup(made.close)
        self.assertEqual(made.submit(add, 2).result(), 3)
        self.assertEqual(made._core.within, [None])
        self.assertEqual(made.submit(add, 2).result(50), 3)
        left = made._core.within[1]
        self.assertTrue(0 < left <= 50, left)

    def test_every_keyword_is_the_functions(self):
        def keywords(**kwargs):
            return kwargs

        given = {"fn": 1, "self": 2, "retries": 3, "name": 4, "key": 5}
        self.assertEqual(self.client.submit(keywords, **given).result(10), given)

    def test_futures_anywhere_in_arguments(self):
        one = self.client.submit(add, 1)
        two = self.client.submit(add, one)
        nested = self.client.submit(lambda d, f: (d["x"][0], d["x"][1], f()), {"x": [two, 1]},
                                    functools.partial(add, one, b=two))  # fmt: skip
        self.assertEqual(nested.result(10), (3, 1, 5))

    def test_one_future_twice_is_one_edge(self):
        one = self.client.submit(add, 1)
        data, parents = _pickling.call_bytes((one, [one]), {})
        self.assertEqual(parents, (one,))

    def test_a_future_outside_a_submission_cannot_be_pickled(self):
        one = self.client.submit(add, 1)
        with self.assertRaisesRegex(TypeError, "part of the arguments"):
            pickle.dumps(one)

    def test_futures_in_closures_are_edges(self):
        one = self.client.submit(add, 1)
        self.assertEqual(self.client.submit(lambda x: one + x, 5).result(10), 7)
        self.assertEqual(self.client.submit(functools.partial(add, b=one), 1).result(10), 3)
        self.assertEqual(list(self.client.map(lambda x: one + x, [1, 2]).results()), [3, 4])

    def test_a_future_of_another_client(self):
        other = client()
        self.addCleanup(other.close)
        with self.assertRaisesRegex(ValueError, "another client"):
            self.client.submit(add, other.submit(add, 1))

    def test_exceptions(self):
        future = self.client.submit(add, 1, "x")
        with self.assertRaises(TypeError) as caught:
            future.result(10)
        self.assertIsInstance(caught.exception.__cause__, starling.RemoteTraceback)
        self.assertIn("in the call", str(caught.exception.__cause__))
        if hasattr(caught.exception, "__notes__"):
            self.assertIn("task 1.0.1 'add', attempt 0.1 on n0", caught.exception.__notes__[0])

    def test_an_exception_that_cannot_come_back(self):
        class Odd(Exception):
            def __init__(self, a, b):
                super().__init__(a)

        def fail():
            raise Odd("text", 2)

        with self.assertRaises(starling.RemoteError) as caught:
            self.client.submit(fail).result(10)
        self.assertIn("Odd", caught.exception.type)
        self.assertIn("in the call", caught.exception.frames)

    def test_a_failed_input(self):
        bad = self.client.submit(add, 1, "x")
        after = self.client.submit(add, bad)
        last = self.client.submit(add, [after])
        for future in (after, last):
            with self.assertRaises(starling.DependencyError):
                future.result(10)
        self.assertIsInstance(last.exception().__cause__, TypeError)
        self.assertIs(after.exception().__cause__, last.exception().__cause__)
        self.assertIsInstance(bad.exception().__cause__, starling.RemoteTraceback)

    def test_the_end_of_a_failed_input_may_come_last(self):
        def fail(fd):
            os.read(fd, 1)
            raise KeyError("where")

        gate = Gate()
        bad = self.client.submit(fail, gate.fd)
        after = self.client.submit(add, bad)
        seen = []
        # A callback must not wait for what its own thread brings.
        after.add_done_callback(lambda future: seen.append(future.exception()))
        self.client._ended([(after._local, 1, 3, "an input failed", 0, 0, None)])
        self.assertIsInstance(seen[0], starling.DependencyError)
        with self.assertRaises(starling.DependencyError):
            after.result(0.01)
        gate.open()
        cause = after.exception(10).__cause__
        self.assertEqual(cause.args, ("where",))
        self.assertIsInstance(cause.__cause__, starling.RemoteTraceback)

    def test_paths_of_what_cannot_be_pickled(self):
        class Model:
            pass

        model = Model()
        model.client = Model()
        model.client._lock = threading.Lock()
        with self.assertRaises(starling.CannotPickle) as caught:
            self.client.submit(add, 1, b={"model": model})
        self.assertEqual(caught.exception.path, "kwargs['b']['model'].client._lock")
        with self.assertRaises(starling.CannotPickle) as caught:
            self.client.submit(add, [1, (2, threading.Lock())])
        self.assertEqual(caught.exception.path, "args[0][1][1]")
        self.assertIsInstance(caught.exception, pickle.PicklingError)

    def test_classes_of_the_script_travel_by_value(self):
        class Point:
            def __init__(self, x):
                self.x = x

        found = self.client.submit(lambda p: Point(p.x + 1), Point(1)).result(10)
        self.assertEqual((type(found), found.x), (Point, 2))

    def test_modules_of_the_current_folder_go_by_value_with_a_tool(self):
        main = sys.modules["__main__"]
        before = getattr(main, "__file__", None)
        self.addCleanup(setattr, main, "__file__", before)
        for script, folder in (
            ("/home/ada/x/run.py", "/home/ada/x"),
            ("/env/lib/python3.12/site-packages/pytest/__main__.py", os.getcwd()),
            (os.path.join(sys.prefix, "bin", "pytest"), os.getcwd()),
            (None, os.getcwd()),
        ):
            main.__file__ = script
            self.assertEqual(_pickling.script_folder(), folder)

    def test_large_functions_go_once(self):
        big = bytes(10_000)
        fn = lambda: len(big)  # noqa: E731
        self.assertEqual(self.client.submit(fn).result(10), 10_000)
        stored = len(self.client._core.kv)
        self.assertEqual(self.client.submit(fn).result(10), 10_000)
        self.assertEqual((stored, len(self.client._core.kv)), (1, 1))

    def test_a_changed_function_is_a_new_function(self):
        def make(n):
            return lambda: n

        self.assertEqual([self.client.submit(make(n)).result(10) for n in range(3)], [0, 1, 2])

    def test_large_arguments_become_puts_once(self):
        big = os.urandom(100_000)
        for _ in range(2):
            self.assertEqual(self.client.submit(len, big).result(10), 100_000)
        self.assertLessEqual(self.client._job.next, 4)

    def test_too_large_arguments_name_the_largest(self):
        one = self.client.submit(add, 1)
        with self.assertRaisesRegex(starling.TooLarge, "use put"):
            self.client.submit(add, [one, os.urandom(50_000)])

    def test_put(self):
        value = {"a": os.urandom(5000)}
        future = self.client.put(value)
        self.assertIs(self.client.put(value), future)
        self.assertEqual(future.result(10), value)
        self.assertEqual(self.client.submit(lambda v: len(v["a"]), future).result(10), 5000)
        self.client.close()
        self.assertEqual(self.client._core.kv, {})

    def test_put_in_parts(self):
        from starling import _values

        before, _values.PART_MAX = _values.PART_MAX, 900
        self.addCleanup(setattr, _values, "PART_MAX", before)
        value = os.urandom(1500)
        self.assertEqual(self.client.put(value).result(10), value)
        # Two parts, and the call that joins them.
        self.assertEqual(self.client._job.next, 3)

    def test_put_of_more_than_a_part(self):
        value = os.urandom(9 << 20)
        self.assertEqual(self.client.put(value).result(60), value)
        self.assertTrue(all(len(data) <= 8 << 20 for data in self.client._core.kv.values()))
        with self.assertRaisesRegex(starling.TooLarge, "give large values as arguments"):
            self.client.submit(lambda: len(value))

    def test_large_results_are_fetched_when_read(self):
        future = self.client.submit(lambda: bytes(100_000))
        concurrent.futures.wait([future], 10)
        self.assertIsNone(future._end.inline)
        self.assertEqual(len(future.result()), 100_000)

    def lost(self):
        future = self.client.submit(lambda: bytes(100_000))
        concurrent.futures.wait([future], 10)
        self.client._core.lose(future._local)
        return future

    def test_a_lost_result_is_made_again(self):
        future = self.lost()
        self.assertEqual(len(future.result(10)), 100_000)
        self.assertEqual((future._end.attempt, future._end.node), (2, 1))
        self.assertGreater(len(self.lost().raw(10)), 100_000)

    def test_a_result_that_cannot_be_made_again_is_lost(self):
        future = self.lost()
        self.client._core.lost.clear()
        with self.assertRaisesRegex(starling.ResultLost, "no object.*cannot be made again: its rec"):
            future.result(10)

    def test_a_result_that_is_lost_again_and_again(self):
        future = self.lost()
        self.client._core.lost_again = 2
        self.assertEqual(len(future.result(10)), 100_000)
        future = self.lost()
        self.client._core.lost_again = 9
        with self.assertRaisesRegex(starling.ResultLost, "it was lost 4 times"):
            future.result(10)

    def test_a_wait_for_a_lost_result_ends_in_time(self):
        blocker, gate = hold(self, self.client.submit)
        future = self.client.submit(lambda: bytes(100_000))
        gate.open()
        self.assertGreater(len(future.raw(10)), 100_000)
        self.client._core.lose(future._local)
        blocker, gate = hold(self, self.client.submit)
        with self.assertRaises(TimeoutError):
            future.result(0.05)
        gate.open()
        # The same reader, which has ended meanwhile.
        self.assertEqual(len(future.result(10)), 100_000)
        self.assertEqual(self.client._core.places[future._local], (2, 1))

    def test_a_node_that_is_back_is_asked_again(self):
        future = self.client.submit(lambda: bytes(100_000))
        concurrent.futures.wait([future], 10)
        fetch, asked = self.client._core.fetch, []

        def down_once(*where, within=None):
            asked.append(where)
            if len(asked) == 1:
                raise starling.ClusterError("node n0 is down")
            return fetch(*where, within=within)

        self.client._core.fetch = down_once
        self.assertEqual(len(future.result(10)), 100_000)
        # A reader ran there meanwhile.
        self.assertEqual(asked, [(1, future._local, 1, 0)] * 2)

    def test_what_is_gathered_is_made_again_together(self):
        futures = [self.lost() for _ in range(3)] + [self.client.submit(add, 1)]
        read = []
        append = self.client._job.append

        def seen(spec, data, edges):
            read.append(edges)
            return append(spec, data, edges)

        self.client._job.append = seen
        found = starling.gather({"all": futures[:2], "last": futures[2:]})
        self.assertEqual([len(data) for data in found["all"]], [100_000] * 2)
        self.assertEqual((len(found["last"][0]), found["last"][1]), (100_000, 2))
        self.assertEqual(read, [[(future._local, 0)] for future in futures[:3]])

    def test_a_callback_may_read_a_lost_result(self):
        core, found = self.client._core, []
        future = self.lost()
        other = self.client.submit(add, 1)
        concurrent.futures.wait([other], 10)

        def ended(job, local):
            # No end comes here: the thread that brings ends is this one.
            core.lost_again = 0
            verdict = core.make_again(future._local)
            return verdict[1] == 0, verdict[4], verdict[2]

        core.ended = ended
        self.client.submit(add, 2).add_done_callback(lambda _: found.append(len(future.result())))
        for _ in range(1000):
            if found:
                break
            time.sleep(0.01)
        self.assertEqual(found, [100_000])

    def test_a_callback_waits_for_a_lost_result_within_limits(self):
        future, found = self.lost(), []
        self.client._core.ended = lambda job, local: None

        def read(_):
            try:
                future.result()
            except starling.ResultLost as error:
                found.append(str(error))

        with unittest.mock.patch.object(starling._reading, "CALLBACK_SECONDS_MAX", 0):
            self.client.submit(add, 2).add_done_callback(read)
            for _ in range(1000):
                if found:
                    break
                time.sleep(0.01)
        self.assertRegex(found[0], "a callback waits no longer")

    def test_a_read_task_is_no_call_of_a_job(self):
        self.lost().result(10)
        job = self.client.detach()
        client = starling.Client(name="test", _core=self.client._core)
        client._attach(job)
        self.addCleanup(client.close)
        self.assertEqual([future._name for future in client.futures()], ["Calls.lost.<locals>.<lambda>"])

    def test_a_result_that_was_made_again_is_read_where_it_is(self):
        future = self.client.submit(lambda: bytes(100_000))
        concurrent.futures.wait([future], 10)
        self.client._core.places[future._local] = (2, 1)
        self.assertEqual(len(future.result()), 100_000)

    def test_one_end_that_fails_does_not_cost_the_others(self):
        from starling._future import DONE, Future

        first = Future(self.client, 1000, "first", ())
        second = Future(self.client, 1001, "second", ())
        first._finish = lambda end: 1 // 0
        self.client._futures.update({1000: first, 1001: second})
        self.client._ended([(1000, 1, DONE, "", 0, 0, b"1"), (1001, 1, DONE, "", 0, 0, b"2")])
        self.assertIsInstance(first.exception(1), ZeroDivisionError)
        self.assertEqual(second.result(1), 2)

    def test_puts_of_open_calls_stay(self):
        first, second = client(), client()
        first._core.kv = second._core.kv = {}
        second._core.jobs.append(None)
        value = os.urandom(5000)
        self.assertEqual([here.put(value).result(10) for here in (first, second)], [value] * 2)
        self.assertEqual(len(second._core.kv), 2)
        second.close()
        self.assertEqual(len(first._core.kv), 1)
        hold(self, first.submit)
        first.close()
        self.assertEqual(len(first._core.kv), 1)

    def test_what_asks_for_a_call_stores_it_first(self):
        blocker, gate = hold(self, self.client.submit)
        self.assertIn("fake core", self.client.submit(add, 1).explain())
        self.assertTrue(self.client.submit(add, 1).cancel())
        self.assertTrue(self.client.submit(add, 1).cancel(kill=True))
        gate.open()
        self.assertIsNotNone(blocker.result(10))

    def test_a_cancel_that_reaches_no_node_does_not_raise(self):
        blocker, gate = hold(self, self.client.submit)

        def refused(job, locals):
            raise starling.ClusterError("no node answers")

        self.client._core.cancel = refused
        future = self.client.submit(add, 1)
        self.assertFalse(future.cancel())
        with self.assertRaises(starling.ClusterError):
            future.cancel(kill=True)
        gate.open()
        self.assertEqual(future.result(10), 2)
        self.assertIsNotNone(blocker.result(10))

    def test_the_attempt_is_an_id(self):
        from starling._future import FAILED, Future

        here = self.client.submit(lambda: starling.current_task())
        self.assertIsNone(here.result(10))
        future = Future(self.client, 1000, "far", ())
        self.client._futures[1000] = future
        attempt = (7 << 32) + 47
        self.client._ended([(1000, attempt, FAILED, "ValueError: x", 0, 2, None)])
        # As `current_task().attempt` has it.
        self.assertEqual(future.attempt, attempt)
        self.assertIn("attempt 7.47 on n2", future.exception(10).__notes__[0])

    def test_what_is_nested_too_deeply(self):
        deep = []
        for _ in range(100_000):
            deep = [deep]
        for submit in (
            lambda: self.client.submit(len, 1, deep),
            lambda: self.client.submit(lambda: deep),
            lambda: self.client.put(deep),
        ):
            with self.assertRaisesRegex(starling.CannotPickle, "deep|recursion") as caught:
                submit()
            self.assertLess(len(str(caught.exception)), 1000)
        with self.assertRaisesRegex(starling.CannotPickle, r"at args\[1\] \(a list\)"):
            self.client.submit(len, 1, deep)

    def test_waits_take_futures_alone(self):
        for waits in (starling.wait, starling.as_completed):
            with self.assertRaisesRegex(TypeError, "takes futures, not 1"):
                waits([1, 2])

    def test_no_time_limit(self):
        self.assertEqual(Options().changed({"time_limit": None}).time_limit, 0)
        for given in (0, "0", 0.0):
            with self.assertRaisesRegex(ValueError, "None is no limit"):
                self.client.options(time_limit=given)

    def test_explain(self):
        self.assertIn("fake core", self.client.submit(add, 1).explain())

    def test_a_lost_cluster_fails_what_is_open(self):
        slow, _ = hold(self, self.client.submit)
        self.client._lost("all nodes are gone")
        with self.assertRaisesRegex(starling.ClusterError, "all nodes are gone"):
            slow.result(1)
        with self.assertRaises(starling.ClusterError):
            self.client.submit(add, 1)

    def test_results_are_released(self):
        for k in range(300):
            self.client.submit(add, k).result(10)
        gc.collect()
        self.client.submit(add, 1).result(10)
        self.assertGreaterEqual(len(self.client._core.released), 256)

    def test_results_of_equal_calls_are_their_own(self):
        first, second = self.client.submit(list), self.client.submit(list)
        first.result(10).append(1)
        self.assertEqual(second.result(10), [])


class Waiting(unittest.TestCase):
    def setUp(self):
        self.client = client()
        self.addCleanup(self.client.close)

    def test_map_is_lazy(self):
        taken = []

        def arguments():
            for k in itertools.count():
                taken.append(k)
                yield k

        futures = self.client.map(add, arguments(), ahead=8)
        self.assertLessEqual(len(taken), 9)
        found = [next(futures).result(10) for _ in range(100)]
        self.assertEqual(found, list(range(1, 101)))
        self.assertLess(len(taken), 120)

    def test_map_of_two_and_its_results(self):
        futures = self.client.map(add, [1, 2], [10, 20])
        self.assertEqual(list(futures.results()), [11, 22])
        with self.assertRaises(TypeError):
            self.client.map(add)

    def test_as_completed(self):
        futures = [self.client.submit(add, k) for k in range(20)]
        found = sorted(f.result() for f in starling.as_completed(futures, timeout=10))
        self.assertEqual(found, list(range(1, 21)))
        mapped = self.client.map(add, range(50), ahead=7)
        found = sorted(f.result() for f in starling.as_completed(mapped))
        self.assertEqual(found, list(range(1, 51)))
        for future in concurrent.futures.as_completed(futures, 10):
            self.assertTrue(future.done())

    def test_as_completed_is_late(self):
        future, _ = hold(self, self.client.submit)
        with self.assertRaises(TimeoutError):
            list(starling.as_completed([future], timeout=0.05))

    def test_wait_and_gather(self):
        futures = {"a": [self.client.submit(add, 1)], "b": (self.client.submit(add, 2), 7)}
        self.assertEqual(starling.gather(futures), {"a": [2], "b": (3, 7)})
        done, pending = starling.wait([futures["a"][0]], timeout=10)
        self.assertEqual((len(done), len(pending)), (1, 0))

    def test_asyncio(self):
        async def main():
            one = self.client.submit(add, 1)
            self.assertEqual(await self.client.submit(add, one), 3)
            big = self.client.submit(lambda: bytes(10_000))
            self.assertEqual(len(await big), 10_000)
            with self.assertRaises(TypeError):
                await self.client.submit(add, None)
            found = []
            async for future in starling.as_completed([self.client.submit(add, k) for k in (1, 2)]):
                found.append(await future)
            self.assertEqual(sorted(found), [2, 3])
            both = await asyncio.gather(self.client.submit(add, 1), self.client.submit(add, 2))
            self.assertEqual(both, [2, 3])

        asyncio.run(main())

    def test_a_cancel_here_and_its_end_may_meet(self):
        from starling._future import CANCELLED, End

        future, _ = hold(self, self.client.submit)
        end = End(1, CANCELLED, "", 0, 0, None)
        self.assertTrue(future._cancelled_here())
        future._finish(end)
        self.assertTrue(future._cancelled_here())
        done, _ = concurrent.futures.wait([future], timeout=1)
        self.assertEqual(done, {future})

    def test_a_call_that_runs(self):
        blocker, gate = hold(self, self.client.submit)
        waiting = self.client.submit(add, 1)
        while self.client._core.jobs[0].running != 1:
            time.sleep(0.001)
        while not blocker.running():
            time.sleep(0.001)
        self.assertIn("running", repr(blocker))
        self.assertFalse(waiting.running())
        self.assertIn("pending", repr(waiting))
        # A young answer is kept.
        blocker._looked = (time.monotonic() + WAIT, True)
        self.client._core.is_running = None
        self.assertTrue(blocker.running())
        gate.open()
        waiting.result(10)
        self.assertFalse(blocker.running())

    def test_cancel(self):
        blocker, gate = hold(self, self.client.submit)
        waiting = self.client.submit(add, 1)
        after = self.client.submit(add, waiting)
        while self.client._core.jobs[0].running != 1:
            time.sleep(0.01)
        self.assertFalse(blocker.cancel())
        self.assertTrue(waiting.cancel())
        self.assertTrue(waiting.cancelled())
        with self.assertRaises(concurrent.futures.CancelledError):
            waiting.result()
        gate.open()
        with self.assertRaises(concurrent.futures.CancelledError):
            after.result(10)
        self.assertFalse(blocker.cancel() or blocker.cancelled())


class Options_(unittest.TestCase):
    def test_values(self):
        sizes = {"8GiB": 8 << 30, "1.5 MB": 1_500_000, " 10 ": 10, "1k": 1000, ".5": 1, "7.B": 7}
        sizes[str(1 << 62)] = 1 << 62
        for text, found in sizes.items():
            self.assertEqual(size_bytes(text), found, text)
        self.assertEqual(size_bytes(5), 5)
        wrong_sizes = ["8 giraffes", "", "MB", "8gib", "8Gi", "1..2", ".", "1e9", "-3"]
        wrong_sizes += ["99999999999TB", -1, True, 1.5, None]
        for wrong in wrong_sizes:
            with self.assertRaises(ValueError, msg=wrong):
                size_bytes(wrong)
        times = {"1h 30m": 5400.0, "1h30min": 5400.0, "250ms": 0.25, "5\u00b5s": 5e-6}
        times.update({"0": 0, 3: 3, 0: 0})
        for given, seconds in times.items():
            self.assertEqual(duration_ns(given), round(seconds * 1e9), given)
        wrong_times = ["soon", "", "5", "1 h", "5H", "1..2s", "-1s", "999999999999h"]
        wrong_times += [-1, True, None]
        for wrong in wrong_times:
            with self.assertRaises(ValueError, msg=wrong):
                duration_ns(wrong)
        with self.assertRaisesRegex(TypeError, "no option 'pure'"):
            Options().changed({"pure": True})
        self.assertEqual(Options().changed({"priority": -5}).fields("f")["priority"], -5)
        wrong_numbers = ({"cpus": 0}, {"retries": -1}, {"cpus": 1.5}, {"priority": "high"})
        for wrong in (*wrong_numbers, {"priority": 1 << 31}):
            with self.assertRaises(ValueError):
                Options().changed(wrong)

    def test_units_are_those_of_workflow_files(self):
        path = node.ROOT / "workloads" / "src" / "graph" / "quantity.rs"
        source = path.read_text(encoding="utf-8")

        def units(function):
            body = source.partition("pub fn %s(" % function)[2].partition("\n}")[0]
            arms = re.findall(r"^ +(\".*\") =>", body, re.MULTILINE)
            return {unit for arm in arms for unit in re.findall(r'"([^"]*)"', arm)}

        self.assertEqual(units("parse_size_bytes"), set(SIZE_UNITS))
        self.assertEqual(units("parse_duration_ns"), set(TIME_UNITS_NS))

    def test_bound(self):
        here = client()
        self.addCleanup(here.close)
        bound = here.options(retries=2, memory="1GiB").options(name="fit")
        self.assertEqual(bound.submit(add, 1).result(10), 2)
        (options, *_), *_ = [key for key in here._specs.values()]
        self.assertEqual((options["retries"], options["memory_bytes"]), (2, 1 << 30))
        self.assertEqual(options["name"], "fit")

    def test_retry_on(self):
        here = client()
        self.addCleanup(here.close)
        runs = []

        def fail(kind):
            runs.append(kind)
            raise kind("again")

        from starling import _wrappers

        for kind, number in ((OSError, 3), (FileNotFoundError, 3), (ValueError, 1)):
            del runs[:]
            with self.assertRaises(kind):
                _wrappers.retried(fail, (OSError,), 2, kind)
            self.assertEqual(len(runs), number)
        left = iter([1, 1, 0])

        def flaky():
            if next(left):
                raise OSError("again")
            return "right"

        self.assertEqual(_wrappers.retried(flaky, (OSError,), 2), "right")
        gate = Gate()
        bound = here.options(retries=2, retry_on=(BlockingIOError, OSError))
        os.set_blocking(gate.fd, False)
        with self.assertRaises(BlockingIOError):
            bound.submit(gate.call, gate.fd, 1).result(10)
        gate.open()
        self.assertEqual(bound.submit(gate.call, gate.fd, 1).result(10), bytes(1))
        one = here.submit(add, 1)
        self.assertEqual(bound.submit(lambda x: one + x, 5).result(10), 7)
        # The node makes no further attempts of its own.
        self.assertEqual({spec[0]["retries"] for _, spec in here._job.all}, {0})
        for wrong in (KeyboardInterrupt, "OSError", (OSError, 5)):
            with self.assertRaisesRegex(TypeError, "exception classes"):
                here.options(retry_on=wrong)
        with self.assertRaisesRegex(ValueError, "isolate is"):
            here.options(isolate="yes")

    def test_task(self):
        here = client()
        self.addCleanup(here.close)
        self.assertEqual(double(4), 8)
        self.assertEqual(double.on(here).submit(4).result(10), 8)
        self.assertEqual(list(double.on(here).map([1, 2]).results()), [2, 4])
        # A task in the arguments is its function.
        self.assertEqual(here.submit(lambda f, x: f(x), double, 5).result(10), 10)


class Executors(unittest.TestCase):
    def test_strict(self):
        with client() as here:
            with starling.Executor(max_workers=2, client=here) as executor:
                self.assertEqual(list(executor.map(add, range(10))), list(range(1, 11)))
                future = executor.submit(lambda: bytes(10_000))
                failed = executor.submit(add, None)
            self.assertEqual(len(future.result()), 10_000)
            self.assertIsInstance(failed.exception(), TypeError)
            with self.assertRaises(RuntimeError):
                executor.submit(add, 1)
            with self.assertRaises(ValueError):
                starling.Executor(max_workers=0, client=here)

    def test_cancel_futures(self):
        with client(workers=1) as here:
            executor = starling.Executor(max_workers=1, client=here)
            gate = Gate()
            futures = [executor.submit(gate.call, gate.fd, 1) for _ in range(20)]
            executor.shutdown(wait=False, cancel_futures=True)
            gate.open(2)
            executor.shutdown(wait=True)
            # One call ran, and one waited on the cluster.
            self.assertEqual(sum(future.cancelled() for future in futures), 18)
            self.assertTrue(all(future.done() for future in futures))


class Cluster(unittest.TestCase):
    def test_no_binary(self):
        before = os.environ.get("STARLING_BINARY")
        os.environ["STARLING_BINARY"] = "/no/such/program"
        try:
            with self.assertRaisesRegex(starling.NoBinary, "/no/such/program"):
                starling.LocalCluster()
        finally:
            os.environ.pop("STARLING_BINARY")
            if before is not None:
                os.environ["STARLING_BINARY"] = before
        with self.assertRaises(ValueError):
            starling.LocalCluster(nodes=0)
        with self.assertRaisesRegex(ValueError, "replicas=3: there are 2 nodes"):
            starling.LocalCluster(nodes=2, replicas=3)


if __name__ == "__main__":
    unittest.main()

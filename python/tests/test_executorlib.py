"""The executor in the shape of those of executorlib."""

import concurrent.futures
import os
import sys
import threading
import time
import unittest

from . import fake_core, node  # noqa: F401 (it sets the path)
import starling
from starling import executorlib
from .test_adapters import unless
from .test_end_to_end import WAIT, _missing


def add(a, b=1):
    return a + b


def fail(*_):
    raise KeyError("no")


def failure(future):
    try:
        return future.exception(WAIT)
    except concurrent.futures.CancelledError as error:
        return error


def presets():
    return {"b": 40, "unknown": 1}


def loads():
    """Another value for each time that it runs."""
    return {"b": time.monotonic_ns()}


class Shape(unittest.TestCase):
    def executor(self, core=None, **options):
        core = core or fake_core.Core(workers=4)
        self.addCleanup(core.close)
        client = starling.Client(_core=core)
        self.addCleanup(client.close)
        return executorlib.Executor(client=client, **options)

    def test_futures_anywhere(self):
        with self.executor() as exe:
            self.assertTrue(exe)
            f = exe.submit(add, 1, b=2)
            g = exe.submit(dict.get, {"x": exe.submit(sum, [f, 4])}, "x")
            self.assertEqual(g.result(WAIT), 7)
            self.assertEqual(list(exe.map(add, [1, 2], [3, 4])), [4, 6])
            self.assertIsInstance(f, starling.Future)
        self.assertEqual(len(exe), 0)
        self.assertIsNone(exe.info)
        for late in (lambda: exe.submit(add, 1), lambda: exe.map(add, [1])):
            self.assertRaises(RuntimeError, late)

    def test_resources(self):
        given = {"threads_per_core": 2, "run_time_max": 60, "cores": 1, "gpus_per_core": 0}
        self.assertEqual(executorlib._options({"gpus_per_core": 1})[0].gpus, "1")
        options, cwd = executorlib._options({**given, "cwd": "/tmp", "priority": 3})
        self.assertEqual((options.cpus, options.time_limit, options.priority), (2, 60 * 10**9, 3))
        self.assertEqual(cwd, "/tmp")
        for wrong in ({"cores": 2}, {"cache_key": "x"}, {"colour": 1}):
            self.assertRaises(TypeError, self.executor, resource_dict=wrong)
        with self.executor(resource_dict={"priority": 1}) as exe:
            for wrong in ({"exclusive": True}, {"num_nodes": 2}):
                self.assertRaises(TypeError, exe.submit, add, 1, resource_dict=wrong)
            self.assertRaises(ValueError, exe.submit, lambda resource_dict: 1)
        for wrong in ({"plot_dependency_graph": True}, {"cache_directory": "x"}):
            self.assertRaises(TypeError, self.executor, **wrong)
        self.assertRaises(ValueError, self.executor, max_cores=0)
        self.executor(block_allocation=True, refresh_rate=0.1, hostname_localhost=None).shutdown()

    def test_presets_and_directory(self):
        here = os.getcwd()
        with self.executor(init_function=presets) as exe:
            self.assertEqual(exe.submit(add, 2).result(WAIT), 42)
            self.assertEqual(exe.submit(add, 2, 3).result(WAIT), 5)
            self.assertEqual(exe.submit(add, 2, b=4).result(WAIT), 6)
        # The calls of the fake core are threads of this process.
        with self.executor() as exe:
            found = exe.submit(os.getcwd, resource_dict={"cwd": "/"}).result(WAIT)
        self.assertEqual((found, os.getcwd()), ("/", here))

    def test_futures_of_others(self):
        with self.executor() as exe, concurrent.futures.ThreadPoolExecutor(1) as pool:
            gate = threading.Event()
            slow = pool.submit(lambda: gate.wait(WAIT) and 5)
            f = exe.submit(add, slow, b=exe.submit(add, 1))
            g = exe.submit(add, f)
            self.assertFalse(g.done())
            gate.set()
            self.assertEqual((f.result(WAIT), g.result(WAIT)), (7, 8))
            failed = exe.submit(add, pool.submit(fail))
            with self.assertRaisesRegex(KeyError, "no"):
                failed.result(WAIT)
            never = concurrent.futures.Future()
            cancelled = exe.submit(add, never)
            self.assertTrue(cancelled.cancel())

    def test_the_end_with_inputs_that_never_come(self):
        exe = self.executor()
        futures = [exe.submit(add, concurrent.futures.Future()) for _ in range(2)]
        futures.append(exe.submit(add, futures[0]))
        self.assertTrue(futures[0].cancel() and futures[0].cancel())
        end = threading.Thread(target=exe.shutdown, kwargs={"cancel_futures": True}, daemon=True)
        end.start()
        end.join(WAIT)
        self.assertFalse(end.is_alive())
        self.assertTrue(futures[0].cancelled() and futures[1].cancelled())
        self.assertIsInstance(failure(futures[2]), concurrent.futures.CancelledError)
        self.assertEqual(len(exe), 0)

    def test_a_call_that_is_cancelled_while_it_is_submitted(self):
        inner, source = concurrent.futures.Future(), concurrent.futures.Future()

        def start():
            self.assertTrue(later.cancel())
            return inner

        later = executorlib.Later([source], start)
        source.set_result(1)
        self.assertTrue(inner.cancelled())
        done, left = concurrent.futures.wait([later], 0)
        self.assertEqual((done, left), ({later}, set()))

    def test_inputs_of_others_that_have_failed_already(self):
        failed, cancelled, ended = (concurrent.futures.Future() for _ in range(3))
        failed.set_exception(KeyError("no"))
        ended.set_exception(SystemExit(3))
        cancelled.cancel()
        with self.executor() as exe:
            for source in (failed, [failed], {"x": failed}):
                self.assertRaises(KeyError, exe.submit(add, source).result, WAIT)
            self.assertRaises(SystemExit, exe.submit(add, ended).result, WAIT)
            future = exe.submit(add, 1, b=cancelled)
            self.assertRaises(concurrent.futures.CancelledError, future.result, WAIT)
            late = concurrent.futures.Future()
            future = exe.submit(add, late)
            late.set_exception(SystemExit(4))
            self.assertRaises(SystemExit, future.result, WAIT)

    def test_a_failed_input(self):
        with self.executor() as exe:
            f = exe.submit(add, exe.submit(add, exe.submit(fail)))
            with self.assertRaisesRegex(KeyError, "no"):
                f.result(WAIT)
            self.assertIsInstance(f.exception(), KeyError)

    def test_parts_of_results(self):
        with self.executor() as exe:
            first, second = executorlib.split_future(exe.submit(divmod, 17, 5), 2)
            self.assertEqual(exe.submit(add, first, second).result(WAIT), 5)
            part = executorlib.get_item_from_future(exe.submit(dict, a=4), "a")
            self.assertEqual(part.result(WAIT), 4)
            with self.assertRaises(KeyError):
                executorlib.get_item_from_future(exe.submit(dict), "a").result(WAIT)

    def test_batches(self):
        with self.executor() as exe:
            batches = exe.batched([exe.submit(add, k, 0) for k in range(10)], n=3)
            sums = [exe.submit(sum, batch) for batch in batches]
            self.assertEqual([len(batch.result(WAIT)) for batch in batches], [3, 3, 3, 1])
            self.assertEqual(sum(f.result(WAIT) for f in sums), 45)

            mixed = [exe.submit(fail if k % 3 == 0 else add, k, 0) for k in range(10)]
            batches = exe.batched(mixed, n=3)
            found = [batch.exception(WAIT) for batch in batches]
            self.assertEqual([type(error) for error in found], [type(None)] * 2 + [KeyError] * 2)
            self.assertEqual(sum(batches[0].result() + batches[1].result()), 27)
            self.assertEqual(exe.batched([], n=3), [])

    def test_a_batch_with_a_lost_value(self):
        core = fake_core.Core(workers=4, is_inline=False)
        with self.executor(core) as exe:
            kept = exe.submit(add, 1)
            self.assertEqual(kept.result(WAIT), 2)

            def fetch(*_, **_within):
                raise starling.ResultLost("no object")

            core.fetch = fetch
            core.ended = lambda job, local: (False, 0, "its record has left memory")
            batches = exe.batched([kept, exe.submit(add, 2)], n=2)
            self.assertRaises(starling.ResultLost, batches[0].result, WAIT)

    @unless("executorlib")
    def test_selectors_of_executorlib(self):
        import executorlib as original

        with self.executor() as exe:
            first, second = original.split_future(exe.submit(divmod, 17, 5), 2)
            self.assertEqual(exe.submit(add, first, b=second).result(WAIT), 5)
            with self.assertRaises(original.standalone.interactive.communication.ExecutorlibSocketError):
                exe.submit(sys.exit, 3).result(WAIT)


@unittest.skipIf(_missing is not None, _missing)
class OnNodes(unittest.TestCase):
    def test_a_cluster_of_its_own(self):
        with starling.LocalCluster(nodes=1, slots=2) as cluster:
            with cluster.client() as client:
                exe = executorlib.Executor(client=client, init_function=loads)
                wide = exe.submit(lambda: starling.current_task().cpus, resource_dict={"threads_per_core": 2})
                runs = {exe.submit(add, 0).result(WAIT) for _ in range(20)}
                self.assertLessEqual(len(runs), 2, "once in each worker")
                self.assertEqual(wide.result(WAIT), 2)
                exe.shutdown()
                self.assertEqual(client.submit(add, 1).result(WAIT), 2)

    def test_values_outlive_the_executor(self):
        os.environ["STARLING_DIR"], before = "/nowhere", os.environ.get("STARLING_DIR")
        try:
            exe = executorlib.Executor(max_cores=1)
        finally:
            del os.environ["STARLING_DIR"]
            if before is not None:
                os.environ["STARLING_DIR"] = before
        with exe:
            large = exe.submit(bytes, 1 << 20)
            chain = exe.submit(len, large)
        self.assertEqual((len(large.result()), chain.result()), (1 << 20, 1 << 20))


if __name__ == "__main__":
    unittest.main()

"""Calls on real nodes. Skipped without the extension module or the program."""

import asyncio
import concurrent.futures
import json
import os
import signal
import subprocess
import sys
import time
import unittest

from . import node  # noqa: F401 (it sets the path)
import starling


def missing():
    """Why these tests cannot run; None if they can."""
    from starling._cluster import find_binary

    try:
        from starling import _core  # noqa: F401

        find_binary()
    except (ImportError, starling.NoBinary) as error:
        return "no real nodes: %s" % error
    return None


_missing = missing()
WAIT = 120


def load(n):
    return list(range(n))


def stats(d, scale=1):
    values, more = d["x"]
    return sum(values) * scale + more


@unittest.skipIf(_missing is not None, _missing)
class Calls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = starling.LocalCluster(nodes=2, slots=2)
        cls.cluster.__enter__()
        cls.addClassCleanup(cls.cluster.close)
        cls.client = cls.cluster.client()
        cls.addClassCleanup(cls.client.close)

    def test_futures_carry_values(self):
        f = self.client.submit(load, 10)
        g = self.client.submit(stats, {"x": [f, 1]}, scale=2)
        self.assertEqual(g.result(WAIT), 91)
        self.assertEqual(f.result(WAIT), list(range(10)))

    def kill_a_driver(self, on_silence):
        """Returns the job of a driver that was killed with one call done and one under way."""
        script = (
            "import os, sys, time, starling\n"
            "here = starling.Client(sys.argv[1], on_silence=sys.argv[2], silent_after=2)\n"
            "large = here.submit(lambda: bytes(100_000))\n"
            "large.result(60)\n"
            "late = here.submit(lambda: time.sleep(4) or os.getpid())\n"
            "here._job.flush()\n"
            "print(here.job, flush=True)\n"
            "time.sleep(600)\n"
        )
        argv = [sys.executable, "-c", script, self.cluster.dir, on_silence]
        driver = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        self.addCleanup(driver.stdout.close)
        job = int(driver.stdout.readline())
        driver.kill()
        driver.wait()
        return job

    def info(self, job):
        argv = [self.cluster.binary, "--dir", self.cluster.dir, "--json", "job", "info", str(job)]
        return json.loads(subprocess.run(argv, stdout=subprocess.PIPE, check=True).stdout)

    def test_the_job_of_a_silent_client_runs_on_and_another_attaches(self):
        job = self.kill_a_driver("close")
        wait = [self.cluster.binary, "--dir", self.cluster.dir, "job", "wait", str(job)]
        waited = subprocess.run(wait, stderr=subprocess.PIPE, text=True, timeout=WAIT)
        self.assertEqual(waited.returncode, 0, waited.stderr)
        self.assertIn("its client is silent", waited.stderr)
        info = self.info(job)
        self.assertTrue(info["open"] and info["silent_since_s"] > 0, info)
        with starling.attach(job, self.cluster.dir) as here:
            large, late = here.futures()
            self.assertEqual(len(large.result(WAIT)), 100_000)
            self.assertIsInstance(late.result(WAIT), int)
            self.assertEqual(here.submit(len, large).result(WAIT), 100_000)
            self.assertNotIn("silent_since_s", self.info(job))

    def test_the_job_of_a_silent_client_is_cancelled_if_it_said_so(self):
        job = self.kill_a_driver("cancel")
        wait = [self.cluster.binary, "--dir", self.cluster.dir, "job", "wait", str(job)]
        subprocess.run(wait, stderr=subprocess.DEVNULL, timeout=WAIT)
        info = self.info(job)
        self.assertEqual(info["cancelled_by"], "home: client silent for 2 s", info)

    def test_a_detached_job_has_no_silent_client(self):
        here = starling.Client(self.cluster.dir, on_silence="cancel", silent_after=1)
        here.submit(len, "abc").result(WAIT)
        job = here.detach()
        time.sleep(4)
        info = self.info(job)
        self.assertTrue(info["open"], info)
        self.assertNotIn("silent_since_s", info)
        with starling.attach(job, self.cluster.dir) as again:
            self.assertEqual(again.futures()[0].result(WAIT), 3)

    def test_a_chain(self):
        future = self.client.submit(lambda: 0)
        for _ in range(50):
            future = self.client.submit(lambda n: n + 1, future)
        self.assertEqual(future.result(WAIT), 50)

    def test_map(self):
        found = list(self.client.map(lambda n: n * n, range(1000)).results())
        self.assertEqual(found, [n * n for n in range(1000)])

    def test_large_values_move_between_nodes(self):
        big = self.client.submit(lambda: bytes(range(256)) * 4096)
        sizes = [self.client.submit(len, big) for _ in range(8)]
        self.assertEqual([size.result(WAIT) for size in sizes], [1 << 20] * 8)
        self.assertEqual(len(big.result(WAIT)), 1 << 20)

    def test_put_and_large_arguments(self):
        data = os.urandom(1 << 20)
        value = self.client.put(data)
        self.assertEqual(self.client.submit(len, value).result(WAIT), 1 << 20)
        self.assertEqual(self.client.submit(len, data).result(WAIT), 1 << 20)

    def test_exceptions_come_back(self):
        def fail():
            raise KeyError("where")

        future = self.client.submit(fail)
        with self.assertRaises(KeyError) as caught:
            future.result(WAIT)
        self.assertIn("in fail", str(caught.exception.__cause__))
        self.assertIn("'", caught.exception.__notes__[0])
        with self.assertRaises(starling.DependencyError) as caught:
            self.client.submit(load, future).result(WAIT)
        self.assertIsInstance(caught.exception.__cause__, KeyError)

    def test_a_crash_fails_its_call_alone(self):
        crashed = self.client.submit(os._exit, 3)
        others = [self.client.submit(load, 1) for _ in range(8)]
        with self.assertRaises(starling.CallFailed):
            crashed.result(WAIT)
        self.assertEqual([other.result(WAIT) for other in others], [[0]] * 8)

    def test_time_limits(self):
        future = self.client.options(time_limit=1).submit(time.sleep, 600)
        with self.assertRaises(starling.RemoteError) as caught:
            future.result(WAIT)
        self.assertIn("time limit", str(caught.exception))

    def test_what_calls_print(self):
        future = self.client.submit(print, "hello from", "a call")
        future.result(WAIT)
        self.assertEqual(future.stdout, "hello from a call\n")

    def test_cancel(self):
        running = self.client.submit(time.sleep, 600)
        after = self.client.submit(load, running)
        self.assertTrue(running.cancel(kill=True))
        self.assertTrue(running.cancelled())
        # What waits for a cancelled call is cancelled with it.
        with self.assertRaises(concurrent.futures.CancelledError):
            after.result(WAIT)

    def test_await(self):
        async def main():
            return await asyncio.gather(*(self.client.submit(load, n) for n in (1, 2)))

        self.assertEqual(asyncio.run(main()), [[0], [0, 1]])

    def test_tasks_know_themselves(self):
        def look():
            return starling.current_task()

        future = self.client.submit(look)
        found = future.result(WAIT)
        self.assertEqual((found.job, found.local), (self.client.job, future._local))

    def test_random_numbers_differ(self):
        draw = lambda _: __import__("random").random()  # noqa: E731
        found = list(self.client.map(draw, range(16)).results())
        self.assertEqual(len(set(found)), 16)

    def test_executor(self):
        with starling.Executor(client=self.client) as executor:
            self.assertEqual(list(executor.map(pow, [2, 3], [5, 2])), [32, 9])
            with self.assertRaises(ZeroDivisionError):
                executor.submit(divmod, 1, 0).result(WAIT)

    def test_options_that_run_in_the_worker(self):
        def count():
            kept = starling.context()
            kept["runs"] = kept.get("runs", 0) + 1
            if kept["runs"] < 3:
                raise OSError("again")
            return kept["runs"]

        bound = self.client.options(retries=2, retry_on=OSError)
        self.assertEqual(bound.submit(count).result(WAIT), 3)
        with self.assertRaisesRegex(starling.CallFailed, "its worker on node n. .*killed by SIGKILL"):
            self.client.submit(lambda: os.kill(os.getpid(), 9)).result(WAIT)
        alone = self.client.options(isolate="call")
        with self.assertRaisesRegex(starling.CallFailed, "died of signal 9"):
            alone.submit(lambda: os.kill(os.getpid(), 9)).result(WAIT)
        self.assertEqual(len(alone.submit(lambda: bytes(1 << 20)).result(WAIT)), 1 << 20)

    def test_calls_run_in_the_directory_of_the_program(self):
        here = os.getcwd()
        self.assertEqual(self.client.submit(os.getcwd).result(WAIT), here)
        away = starling.Runtime(cwd="/usr")
        self.assertEqual(self.client.options(runtime=away).submit(os.getcwd).result(WAIT), "/usr")
        absent = self.client.options(runtime=starling.Runtime(cwd="/no/such/place"))
        with self.assertRaisesRegex(starling.CallFailed, "the directory of the calls: .*such/place"):
            absent.submit(os.getcwd).result(WAIT)

    def test_a_note_is_printed(self):
        future = self.client.submit(starling.note, "half")
        future.result(WAIT)
        self.assertEqual(future.stderr, "half\n")

    def test_large_puts(self):
        data = os.urandom(9 << 20)
        self.assertEqual(self.client.submit(len, self.client.put(data)).result(WAIT), 9 << 20)

    def test_shown(self):
        self.assertIn("2 nodes with 4 slots", repr(self.client))


@unittest.skipIf(_missing is not None, _missing)
class Clusters(unittest.TestCase):
    def test_the_example(self):
        with starling.LocalCluster(nodes=2).client() as c:
            f = c.submit(load, 5)
            g = c.submit(stats, {"x": [f, 1]})
            self.assertEqual(g.result(WAIT), 11)
            directory = c._cluster._directory
        self.assertFalse(os.path.exists(directory))

    def test_the_number_of_replicas(self):
        for replicas, survived in ((None, 1), (1, 0)):
            with starling.LocalCluster(nodes=3, slots=1, replicas=replicas) as cluster:
                with cluster.client() as client:
                    self.assertEqual(client.submit(load, 2).result(WAIT), [0, 1])
                words = [cluster.binary, "node", "list", "--json", "--dir", cluster.dir]
                listed = subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout
                self.assertEqual(json.loads(listed)["losses_survived"], survived)

    def test_detach_and_attach(self):
        with starling.LocalCluster(nodes=2, slots=2) as cluster:
            first = cluster.client()
            futures = [first.submit(load, 3), first.submit(lambda: bytes(100_000))]
            futures.append(first.submit(time.sleep, 1))
            futures[1].result(WAIT)
            job = first.detach()
            with starling.attach(job, cluster.dir) as second:
                found = second.futures()
                self.assertEqual(len(found), 3)
                self.assertEqual(found[0].result(WAIT), [0, 1, 2])
                self.assertEqual(len(found[1].result(WAIT)), 100_000)
                self.assertIsNone(found[2].result(WAIT))
                self.assertEqual(second.submit(len, found[1]).result(WAIT), 100_000)

    def test_a_closed_job_is_read(self):
        with starling.LocalCluster(nodes=2, slots=2) as cluster:
            first = cluster.client()
            # A future that nothing refers to releases its result.
            futures = [first.submit(load, 3), first.submit(int, "x")]
            starling.wait(futures, timeout=WAIT)
            futures.append(first.submit(lambda: time.sleep(1) or 5))
            first.close()
            with starling.attach(first.job, cluster.dir) as second:
                found = second.futures()
                self.assertEqual(found[0].result(WAIT), [0, 1, 2])
                self.assertIsInstance(found[1].exception(WAIT), ValueError)
                self.assertEqual(found[2].result(WAIT), 5)
                with self.assertRaisesRegex(starling.ClusterError, "is closed: no call"):
                    second.submit(load, 1)

    def test_the_order_of_attached_futures_is_that_of_submission(self):
        with starling.LocalCluster(nodes=2, slots=2) as cluster:
            first = cluster.client()
            first.put(1)
            futures = []
            for n in range(12):
                futures.append(first.options(name="call %d" % n).submit(load, n))
                # The next one is in a chunk of its own, which goes to the next partition.
                first._job.flush()
            self.assertGreater(len({future.task.split(".")[1] for future in futures}), 1)
            futures.append(first.submit(load, 1))
            with starling.attach(first.detach(), cluster.dir) as second:
                found = second.futures()
                names = ["call %d" % n for n in range(12)] + ["load"]
                self.assertEqual([future._name for future in found], names)
                self.assertEqual(found[11].result(WAIT), list(range(11)))

    def test_a_killed_driver_leaves_nothing(self):
        script = (
            "import starling, time\n"
            "cluster = starling.LocalCluster(nodes=1, slots=1)\n"
            "print(cluster._directory, flush=True)\n"
            "time.sleep(600)\n"
        )
        driver = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        directory = driver.stdout.readline().strip()
        self.assertTrue(os.path.isdir(directory))
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        driver.stdout.close()
        end = time.monotonic() + WAIT
        while os.path.exists(directory):
            self.assertLess(time.monotonic(), end, "the cluster outlives its driver")
            time.sleep(0.1)


if __name__ == "__main__":
    unittest.main()

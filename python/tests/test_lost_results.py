"""Results whose node is killed, on real nodes."""

import json
import os
import signal
import subprocess
import unittest

from . import node  # noqa: F401 (it sets the path)
import starling
from .test_end_to_end import WAIT, _missing

SIZE = 200_000
CALLS = 12


def large(k):
    return bytes([k]) * SIZE


def total(parts):
    return sum(len(part) for part in parts)


@unittest.skipIf(_missing is not None, _missing)
class LostResults(unittest.TestCase):
    def setUp(self):
        self.cluster = starling.LocalCluster(nodes=3, slots=2)
        self.cluster.__enter__()
        self.addCleanup(self.cluster.close)
        self.client = self.cluster.client()
        self.addCleanup(self.client.close)

    def kill(self, number):
        os.kill(self.process_of(number), signal.SIGKILL)

    def process_of(self, number):
        from starling._cluster import find_binary

        run = [str(find_binary()), "node", "list", "--json", "--dir", self.cluster.dir]
        listed = subprocess.run(run, capture_output=True, text=True, check=True)
        (pid,) = [it["pid"] for it in json.loads(listed.stdout)["nodes"] if it["id"] == number]
        return pid

    def made(self, client):
        """The futures of results, and a node that has made some of them."""
        futures = [client.submit(large, k) for k in range(CALLS)]
        starling.wait(futures)
        return futures, futures[-1]._end.node

    def check(self, futures):
        for k, future in enumerate(futures):
            self.assertEqual(future.result(WAIT), large(k))

    def test_a_read_ends_with_its_timeout_and_with_a_signal(self):
        futures, busy = self.made(self.client)
        stopped = self.process_of(busy)
        os.kill(stopped, signal.SIGSTOP)
        try:
            with self.assertRaises(TimeoutError):
                futures[-1].result(1)
            # As by Ctrl-C.
            former = signal.signal(signal.SIGALRM, signal.default_int_handler)
            self.addCleanup(signal.signal, signal.SIGALRM, former)
            signal.setitimer(signal.ITIMER_REAL, 1)
            with self.assertRaises(KeyboardInterrupt):
                futures[-1].result()
        finally:
            os.kill(stopped, signal.SIGCONT)

    def test_results_with_copies(self):
        futures, busy = self.made(self.client.options(copies=2))
        self.kill(busy)
        self.check(futures)

    def test_results_without_copies(self):
        futures, busy = self.made(self.client)
        self.kill(busy)
        self.check(futures)

    def test_gathered_results(self):
        futures, busy = self.made(self.client)
        after = self.client.submit(total, futures)
        self.assertEqual(after.result(WAIT), CALLS * SIZE)
        self.kill(busy)
        self.assertEqual(starling.gather(futures), [large(k) for k in range(CALLS)])

    def test_a_chain_is_made_again(self):
        first = self.client.submit(large, 1)
        second = self.client.submit(lambda data: data[::-1], first)
        starling.wait([second])
        ended = {first._end.node, second._end.node}
        self.kill(second._end.node)
        if len(ended) == 1:
            self.assertEqual(second.result(WAIT), large(1))
        self.assertEqual(first.result(WAIT), large(1))
        self.assertEqual(second.result(WAIT), large(1))

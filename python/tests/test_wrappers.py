"""Options that run in the worker, on a real worker: isolation, and repetition inside it."""

import functools
import os
import signal
import sys
import time
import unittest

from . import node
from starling import _cloudpickle, _wrappers
from starling._options import Options
from starling._worker import wire

# Workers cannot import this module.
_cloudpickle.register_pickle_by_value(sys.modules[__name__])
STATE = "STARLING_TEST_STATE"


def change():
    os.environ[STATE] = str(int(os.environ.get(STATE, "0")) + 1)
    return os.environ[STATE]


def raises():
    raise KeyError("in the fork")


class Odd(Exception):
    def __init__(self, a, b):
        super().__init__(a)


def raises_odd():
    raise Odd("text", 2)


def endless(begun):
    try:
        open(begun, "x").close()
        while True:
            time.sleep(0.01)
    finally:
        print("cleared up", flush=True)


def fails_twice():
    if int(change()) < 3:
        raise OSError("again")
    return os.environ[STATE]


class Isolated(unittest.TestCase):
    def setUp(self):
        self.worker = node.Worker()
        self.addCleanup(self.worker.close)

    def run_alone(self, fn, *args, **more):
        return self.worker.run(Options().changed({"isolate": "call"}).wrapped(fn), *args, **more)

    def test_changes_end_with_the_call(self):
        self.assertEqual([self.worker.run(change).value for _ in range(2)], ["1", "2"])
        self.assertEqual([self.run_alone(change).value for _ in range(2)], ["3", "3"])
        self.assertEqual(self.worker.run(change).value, "3")

    def test_arguments_and_large_results(self):
        add = functools.partial(lambda a, b: a + b * 100_000, b=b"y")
        result = self.run_alone(add, node.python_args(b"x"))
        self.assertEqual(result.value, b"x" + b"y" * 100_000)
        self.assertIsNone(self.run_alone(lambda: None).value)

    def test_exceptions_have_their_frames(self):
        result = self.run_alone(raises)
        self.assertEqual(result.status, wire.RAISED)
        found = result.error["type"], result.error["text"]
        self.assertEqual(found, ("KeyError", "'in the fork'"))
        self.assertIn("in raises", result.error["frames"])
        result = self.run_alone(raises_odd)
        self.assertEqual(result.error["type"], "starling._errors.RemoteError")
        self.assertEqual(result.error["text"], "text")

    def test_a_crash_fails_the_call_and_not_the_worker(self):
        for crash, text in (
            (lambda: os.kill(os.getpid(), signal.SIGKILL), "died of signal 9"),
            (lambda: os._exit(3), "ended with exit code 3"),
            (lambda: os._exit(0), "ended with exit code 0"),
        ):
            result = self.run_alone(crash)
            self.assertEqual(result.status, wire.RAISED)
            self.assertIn(text, result.error["text"])
        self.assertEqual(self.worker.run(change).value, "1")

    def test_prints_are_those_of_the_call(self):
        others = []
        self.run_alone(lambda: print("hello"), others=others)
        self.assertEqual([body[wire.PRINT_HEAD.size :] for _, body in others], [b"hello\n"])

    def test_an_interrupt_reaches_the_function(self):
        key = self.worker.learn(Options().changed({"isolate": "call"}).wrapped(endless))
        begun = os.path.join(self.worker.objects.name, "begun")
        call = self.worker.begin(key, node.python_args(begun))
        self.worker.until_running(call)
        end = time.monotonic() + node.WAIT
        while not os.path.exists(begun) and time.monotonic() < end:
            time.sleep(0.01)
        self.worker.interrupt(call)
        others = []
        self.assertEqual(self.worker.result(others).status, wire.CANCELLED)
        self.assertEqual([body[wire.PRINT_HEAD.size :] for _, body in others], [b"cleared up\n"])
        self.assertEqual(self.worker.run(change).value, "1")

    def test_a_worker_with_threads_refuses(self):
        def threads():
            import threading

            threading.Thread(target=time.sleep, args=(600,), daemon=True).start()

        self.worker.run(threads)
        self.assertIn("cannot fork", self.run_alone(change).error["text"])


class Retried(unittest.TestCase):
    def test_in_the_worker(self):
        worker = node.Worker()
        self.addCleanup(worker.close)
        options = Options().changed({"retries": 2, "retry_on": OSError})
        self.assertEqual(worker.run(options.wrapped(fails_twice)).value, "3")
        options = options.changed({"retries": 1})
        other = node.Worker()
        self.addCleanup(other.close)
        self.assertEqual(other.run(options.wrapped(fails_twice)).error["type"], "OSError")

    def test_each_repetition_in_a_fork_of_its_own(self):
        worker = node.Worker()
        self.addCleanup(worker.close)
        options = Options().changed({"retries": 5, "retry_on": OSError, "isolate": "call"})
        self.assertEqual(worker.run(options.wrapped(fails_twice)).error["type"], "OSError")
        self.assertIs(options.wrapped(fails_twice).func, _wrappers.retried)


if __name__ == "__main__":
    unittest.main()

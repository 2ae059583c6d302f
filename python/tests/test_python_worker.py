"""The worker of Python: pickles, exceptions, printing, forks, random numbers, cost of a call."""

import json
import os
import pathlib
import pickle
import shutil
import signal
import sys
import tempfile
import threading
import time
import unittest

from . import node
from starling import _cloudpickle
from starling._worker import values, wire

_cloudpickle.register_pickle_by_value(sys.modules[__name__])


class TwoArguments(Exception):
    """Cannot be unpickled: its constructor takes more than its arguments hold."""

    def __init__(self, a, b):
        super().__init__(a)


class Python(unittest.TestCase):
    def setUp(self):
        self.worker = node.Worker()

    def tearDown(self):
        self.worker.close()

    def value(self, function, *args, **kwargs):
        result = self.worker.run(function, node.python_args(*args, **kwargs))
        self.assertEqual(result.status, wire.OK, result.values)
        return result.value

    def test_arguments_and_results(self):
        self.assertEqual(self.value(lambda a, b=1: (a, b), 5, b=b"x"), (5, b"x"))
        self.assertEqual(self.value(lambda: None), None)
        self.assertEqual(self.value(lambda: b"bytes"), b"bytes")
        self.assertEqual(self.value(lambda n: bytes(n), 300_000), bytes(300_000))

    def test_json_arguments_return_json_where_it_is_exact(self):
        both = wire.value(0, wire.JSON, wire.ARGS_SLOT, b'{"args": [1], "kwargs": {"b": [2]}}')
        result = self.worker.run(lambda a, b: {"a": a, "b": b}, both)
        self.assertEqual((result.values[0][1], result.value), (wire.JSON, {"a": 1, "b": [2]}))
        result = self.worker.run(lambda: (1, 2), node.json_args())
        self.assertEqual((result.values[0][1], result.value), (wire.PICKLE, (1, 2)))
        for exact in (None, True, 1.5, "ä", [], {"a": [{}]}):
            self.assertEqual(json.loads(values.json_bytes(exact)), exact)
        for other in ((), float("nan"), {1: 2}, b"", {"a": {1}}, "\ud800"):
            self.assertIsNone(values.json_bytes(other))

    def test_an_interrupt_waits_for_the_end_of_an_import(self):
        with tempfile.TemporaryDirectory() as directory:
            package = pathlib.Path(directory, "slow_package")
            package.mkdir()
            (package / "part.py").write_text("value = 5\n")
            text = "import os, time\nfrom .part import *\nopen(os.environ['BEGAN'], 'w').close()\n"
            (package / "__init__.py").write_text(text + "time.sleep(0.5)\nfound = part.value\n")
            began = os.path.join(directory, "began")

            def imports(directory, began, ends):
                import os
                import sys
                import time

                os.environ["BEGAN"] = began
                sys.path.insert(0, directory)
                import slow_package

                while not ends:
                    time.sleep(0.01)
                return slow_package.found

            key = self.worker.learn(imports)
            call = self.worker.begin(key, node.python_args(directory, began, False))
            while not os.path.exists(began):
                time.sleep(0.01)
            self.worker.interrupt(call)
            self.assertEqual(self.worker.result().status, wire.CANCELLED)
            self.assertEqual(self.value(imports, directory, began, True), 5)

    def test_a_named_function(self):
        named = wire.value(0, wire.TEXT, 0, b"os.path:join")
        self.assertEqual(self.worker.run(named, node.json_args("a", "b")).value, "a/b")
        named = wire.value(0, wire.TEXT, 0, b"os.path:nothing")
        result = self.worker.run(named)
        self.assertEqual(result.status, wire.REFUSED)
        self.assertIn("os.path:nothing", result.error["text"])

    def test_a_file_of_a_command_comes_as_a_path(self):
        inputs = [wire.value(wire.FILE, wire.RAW, 0, b"/some/path")]
        args = node.json_args({"$slot": 0})
        self.assertEqual(self.worker.run(lambda a: a, args, inputs=inputs).value, "/some/path")

    def test_slots_inside_pickled_arguments(self):
        from starling._worker.context import slot

        class Reference:
            def __init__(self, number):
                self.number = number

            def __reduce__(self):
                return slot, (self.number,)

        shared = Reference(3)
        args = node.python_args({"x": [shared, 1], "y": shared})
        inputs = [wire.value(0, wire.PICKLE, 3, pickle.dumps([7], 5))]
        result = self.worker.run(lambda d: (d["x"][0], d["x"][0] is d["y"]), args, inputs=inputs)
        self.assertEqual(result.value, ([7], True))

    def test_buffers_are_mapped_writable_and_private(self):
        data = bytearray(b"a" * (1 << 20))
        parts = values.dumps(pickle.PickleBuffer(data))
        self.assertEqual(parts[0], wire.SPB1)
        path = os.path.join(self.worker.objects.name, "in")
        values.write_file(path, parts[1])

        def change(view):
            view = memoryview(view)
            view[0] = 98
            return bytes(view[:2])

        inputs = [wire.value(wire.FILE, wire.SPB1, 0, path.encode())]
        for _ in range(2):
            result = self.worker.run(change, node.json_args({"$slot": 0}), inputs=inputs)
            self.assertEqual(result.value, b"ba")

    def test_an_exception_comes_back_as_itself(self):
        def fail():
            raise KeyError("where")

        result = self.worker.run(fail)
        self.assertEqual((result.status, result.flags, len(result.values)), (wire.RAISED, 0, 2))
        self.assertEqual(result.error["type"], "KeyError")
        frames = result.error["frames"]
        self.assertTrue(frames.startswith("Traceback"), frames)
        self.assertNotIn("worker.py", frames)
        error = pickle.loads(result.values[1][3])
        self.assertEqual((type(error), error.args), (KeyError, ("where",)))

    def test_the_frames_of_each_exception_are_a_traceback(self):
        def fail(letter, length):
            raise ValueError(letter * length)

        for args in (("x", 5_000_000), ("\u00e9", 100_000)):
            frames = self.worker.run(fail, node.python_args(*args)).error["frames"]
            self.assertTrue(frames.startswith("Traceback (most recent call last):\n"), frames[:99])
            self.assertIn("in fail", frames)
            self.assertLess(len(frames), 32 << 10)
        # No frame of the function: its arguments are wrong.
        frames = self.worker.run(fail).error["frames"]
        self.assertRegex(frames, r"^Traceback .*:\nTypeError: .*missing 2 required")

    def test_an_exception_that_cannot_be_unpickled_is_only_text(self):
        def fail():
            raise TwoArguments("first", "second")

        result = self.worker.run(fail)
        self.assertEqual((result.status, len(result.values)), (wire.RAISED, 1))
        self.assertIn("TwoArguments", result.error["type"])

    def test_a_result_that_cannot_be_pickled_is_raised(self):
        result = self.worker.run(lambda: threading.Lock())
        self.assertEqual(result.status, wire.RAISED)
        self.assertEqual(result.error["type"], "starling._errors.CannotPickle")
        self.assertIn("_thread.lock", result.error["text"])

    def test_retryable_exceptions(self):
        def fail():
            raise FileNotFoundError("soon")

        function = node.python_function(fail, (OSError,))
        self.assertEqual(self.worker.run(function).flags, wire.RETRYABLE)
        function = node.python_function(fail, (ValueError,))
        self.assertEqual(self.worker.run(function).flags, 0)

    def test_exits_of_python_do_not_end_the_worker(self):
        result = self.worker.run(lambda: sys.exit(3))
        self.assertEqual((result.status, result.error["type"]), (wire.RAISED, "SystemExit"))

    def test_finally_runs_at_an_interrupt(self):
        def wait():
            import starling

            try:
                starling.note("inside")
                time.sleep(60)
            finally:
                print("cleaned")

        call = self.worker.begin(self.worker.learn(wait))
        self.assertEqual(self.worker.next_record()[0], wire.NOTE)
        self.worker.interrupt(call)
        others = []
        self.assertEqual(self.worker.result(others).status, wire.CANCELLED)
        self.assertIn(b"cleaned", others[0][1])

    def test_another_python_is_refused(self):
        data = bytes([2, 7]) + pickle.dumps((len, None), 2)
        result = self.worker.run(wire.value(0, wire.RAW, 0, data))
        self.assertEqual((result.status, result.error["type"]), (wire.REFUSED, "WrongPython"))
        self.assertIn("Python 2.7", result.error["text"])

    def test_a_missing_module_is_refused_with_a_remedy(self):
        data = bytes(sys.version_info[:2]) + b"\x80\x05cno_such_module\nf\nN\x86."
        result = self.worker.run(wire.value(0, wire.RAW, 0, data))
        self.assertEqual(result.status, wire.REFUSED)
        self.assertIn("no_such_module", result.error["text"])
        self.assertIn("Install the module there", result.error["text"])

    def test_damaged_arguments_are_refused(self):
        args = wire.value(0, wire.PICKLE, wire.ARGS_SLOT, b"\x80\x05garbage")
        result = self.worker.run(lambda: None, args)
        self.assertEqual(result.status, wire.REFUSED)

    def test_what_c_libraries_print_is_captured(self):
        def speak():
            import ctypes

            ctypes.CDLL(None).puts(b"from C")
            print("from Python")

        others = []
        self.worker.run(speak, others=others)
        self.assertIn(b"from C", others[0][1])
        self.assertIn(b"from Python", b"".join(body for _, body in others))

    def test_much_output_keeps_its_end(self):
        others = []
        self.worker.run(lambda: print("x" * 1_500_000 + "end"), others=others)
        lost = [wire.PRINT_HEAD.unpack_from(body)[2] for _, body in others]
        data = b"".join(body[wire.PRINT_HEAD.size :] for _, body in others)
        self.assertEqual((len(data), sum(lost)), (wire.PRINT_MAX, 500_004))
        self.assertTrue(data.endswith(b"xend\n"))

    def test_notes_arrive_while_the_call_runs(self):
        def report():
            import starling

            starling.note("half")
            time.sleep(60)

        call = self.worker.begin(self.worker.learn(report))
        kind, body = self.worker.next_record()
        self.assertEqual((kind, body[8:]), (wire.NOTE, b"half"))
        self.worker.interrupt(call)
        self.assertEqual(self.worker.result().status, wire.CANCELLED)

    def test_results_do_not_wait_behind_a_long_call(self):
        quick, slow = self.worker.learn(lambda: 1), self.worker.learn(lambda: time.sleep(600))
        self.worker.send(node.call_record(1, quick), node.call_record(2, slow))
        self.assertEqual(self.worker.result().call, 1)
        self.worker.interrupt(2)
        self.assertEqual(self.worker.result().status, wire.CANCELLED)

    def test_task_and_context(self):
        def look():
            import starling

            kept = starling.context()
            kept["n"] = kept.get("n", 0) + 1
            return tuple(starling.current_task()), kept["n"]

        self.assertEqual(self.value(look), ((7, 9, 1, 1.0, 0), 1))
        self.assertEqual(self.value(look)[1], 2)

    def test_the_stack_of_a_crash_is_printed(self):
        def crash():
            import ctypes

            ctypes.string_at(0)

        self.worker.begin(self.worker.learn(crash))
        with self.assertRaises(node.Ended):
            self.worker.result()
        self.assertEqual(self.worker.process.wait(node.WAIT), -signal.SIGSEGV)
        text = self.worker.printed(2)
        self.assertIn(b"Segmentation fault", text)
        self.assertIn(b"in crash", text)

    def test_a_call_in_a_fork_leaves_the_worker_alone(self):
        def count():
            import starling

            kept = starling.context()
            kept["n"] = kept.get("n", 0) + 1
            return kept["n"], os.getpid() != int(os.environ.get("WORKER_PID", "0"))

        for _ in range(2):
            result = self.worker.run(count, flags=wire.FORK_CALL)
            self.assertEqual(result.value[0], 1)
        self.assertEqual(self.value(count)[0], 1)

    def test_a_crash_in_a_fork_costs_one_call(self):
        def crash():
            os.kill(os.getpid(), signal.SIGKILL)

        result = self.worker.run(crash, flags=wire.FORK_CALL)
        self.assertEqual((result.status, result.error["signal"]), (wire.DIED, 9))
        result = self.worker.run(lambda: os._exit(4), flags=wire.FORK_CALL)
        self.assertEqual((result.status, result.error["exit"]), (wire.DIED, 4))
        self.assertEqual(self.value(lambda: 1), 1)

    def test_a_fork_is_interrupted(self):
        key = self.worker.learn(lambda: time.sleep(60))
        call = self.worker.begin(key, flags=wire.FORK_CALL)
        self.worker.until_running(call)
        # At any moment from here on, before the fork or in it.
        self.worker.interrupt(call)
        self.assertEqual(self.worker.result().status, wire.CANCELLED)

    def test_threads_forbid_a_fork(self):
        def keep_a_thread():
            thread = threading.Thread(target=time.sleep, args=(60,), daemon=True)
            thread.start()

        self.value(keep_a_thread)
        result = self.worker.run(lambda: 1, flags=wire.FORK_CALL)
        self.assertEqual((result.status, result.error["type"]), (wire.REFUSED, "CannotFork"))


class OfZygote(unittest.TestCase):
    def test_preload_init_and_environment(self):
        objects = node.tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, objects)
        path = os.path.join(objects, "init")

        def init():
            os.environ["INIT_RAN"] = "yes"

        _, _, data = 0, 0, node.python_function(init)[8:]
        with open(path, "wb") as file:
            file.write(data)
        env = {"STARLING_WORKER_PRELOAD": "decimal, json", "STARLING_WORKER_INIT": path}
        zygote = node.Zygote(env)
        self.addCleanup(zygote.close)
        worker = node.Worker(zygote=zygote, env={"FOO": "bar", "PATH": None})
        look = lambda: ("decimal" in sys.modules, os.environ["INIT_RAN"], os.environ["FOO"],
                        "PATH" in os.environ)  # fmt: skip
        self.assertEqual(worker.run(look).value, (True, "yes", "bar", False))
        worker.close()

    def test_a_module_that_is_missing_ends_the_zygote_with_a_text(self):
        env = {"STARLING_WORKER_PRELOAD": "no_such_module", "STARLING_NODE": "7"}
        zygote = node.Zygote(env)
        for part in ("no_such_module", "on node n7", "Install the module there"):
            self.assertIn(part, zygote.hello["error"])
        self.assertNotIn("\n", zygote.hello["error"])
        self.assertEqual(zygote.close(), 1)

    def test_threads_are_looked_at_before_each_fork(self):
        folder = node.tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        pathlib.Path(folder, "threaded.py").write_text(
            "import threading, time, sys\n"
            "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
        )
        env = {"STARLING_WORKER_PRELOAD": "threaded", "PYTHONPATH": folder}
        zygote = node.Zygote(env)
        with self.assertRaises(node.Refused) as caught:
            node.Worker(zygote=zygote)
        self.assertEqual(caught.exception.args[0]["reason"], "threads")
        self.assertEqual(zygote.close(), 0)
        # The same environment works in a worker that starts directly.
        worker = node.Worker(env=env)
        self.assertEqual(worker.run(lambda: 1).status, wire.OK)
        worker.close()

    def test_workers_draw_different_random_numbers(self):
        zygote = node.Zygote({"STARLING_WORKER_PRELOAD": "random"})
        self.addCleanup(zygote.close)
        found = set()
        for _ in range(8):
            worker = node.Worker(zygote=zygote)
            found.add(worker.run(lambda: __import__("random").random()).value)
            worker.close()
        self.assertEqual(len(found), 8)

    def test_a_child_of_a_crashed_worker_does_not_hold_its_pipe_open(self):
        zygote = node.Zygote()
        self.addCleanup(zygote.close)
        worker = node.Worker(zygote=zygote)

        def crash():
            if os.fork() == 0:
                time.sleep(600)
            os._exit(3)

        worker.begin(worker.learn(crash))
        self.assertEqual(zygote.exited(worker.pid) >> 8, 3)
        with self.assertRaises(node.Ended):
            worker.next_record()
        worker.close()

    def test_libraries_get_the_cpus_of_the_call(self):
        zygote = node.Zygote({"OMP_NUM_THREADS": "5"})
        self.addCleanup(zygote.close)
        worker = node.Worker(zygote=zygote)
        key = worker.learn(lambda: (os.environ["OMP_NUM_THREADS"], os.environ["MKL_NUM_THREADS"]))
        for cpus in (1, 3, 1):
            worker.begin(key, cpus=1000 * cpus)
            self.assertEqual(worker.result().value, ("5", str(cpus)))
        worker.close()

    def test_workers_end_with_their_zygote(self):
        zygote = node.Zygote()
        worker = node.Worker(zygote=zygote)
        worker.begin(worker.learn(lambda: time.sleep(600)))
        self.assertEqual(zygote.close(), 0)
        with self.assertRaises(node.Ended):
            worker.next_record()


class Numpy(unittest.TestCase):
    def setUp(self):
        try:
            import numpy  # noqa: F401
        except ImportError:
            self.skipTest("no numpy in this Python")

    def test_arrays_are_mapped_writable(self):
        import numpy

        worker = node.Worker(env={"OPENBLAS_NUM_THREADS": "1"})
        self.addCleanup(worker.close)
        big = numpy.arange(1 << 18)
        path = os.path.join(worker.objects.name, "in")
        codec, parts = values.dumps(big)
        values.write_file(path, parts)
        self.assertEqual(codec, wire.SPB1)

        def change(array):
            array[0] = 5
            return array * 2

        inputs = [wire.value(wire.FILE, codec, 0, path.encode())]
        from starling._worker.context import slot

        class Slot:
            def __reduce__(self):
                return slot, (0,)

        for _ in range(2):
            result = worker.run(change, node.python_args(Slot()), inputs=inputs)
            self.assertEqual((result.values[0][0], result.values[0][1]), (wire.FILE, wire.SPB1))
            found = result.value
            self.assertEqual((found[0], found[7]), (10, 14))
            found[1] = 3  # Writable.

    def test_numpy_draws_different_numbers(self):
        zygote = node.Zygote({"STARLING_WORKER_PRELOAD": "numpy"})
        self.addCleanup(zygote.close)
        found = set()
        for _ in range(8):
            worker = node.Worker(zygote=zygote)
            found.add(worker.run(lambda: float(__import__("numpy").random.rand())).value)
            worker.close()
        self.assertEqual(len(found), 8)


class OtherPythons(unittest.TestCase):
    def test_versions(self):
        found = 0
        for name in ("python3.8", "python3.10", "python3.12", "python3.13"):
            program = _python(name)
            if program is None:
                continue
            found += 1
            with self.subTest(program):
                zip_worker = [program, str(node.ZIP), "worker"]
                worker = node.Worker(argv=zip_worker)
                named = wire.value(0, wire.TEXT, 0, b"math:gcd")
                self.assertEqual(worker.run(named, node.json_args(12, 18)).value, 6)
                data = node.python_function(lambda: 1)
                self.assertEqual(worker.run(data).error["type"], "WrongPython")
                self.assertEqual(worker.close(), 0)
        if not found:
            self.skipTest("no other Python on this machine")


def _python(name):
    version = name[len("python") :]
    for path in sorted(pathlib.Path.home().glob(".pyenv/versions/%s.*/bin/python" % version)):
        return str(path)
    return shutil.which(name)


class Cost(unittest.TestCase):
    CALLS = 100_000
    BATCH = 32

    def test_no_operations(self):
        """Prints the CPU time of a call. The bound is ten times that of a quiet machine."""
        worker = node.Worker()
        key = worker.learn(lambda: None)
        worker.send(node.call_record(1, key))
        worker.result()
        frames = [
            [node.call_record(first + k, key) for k in range(self.BATCH)]
            for first in range(2, self.CALLS + 2, self.BATCH)
        ]
        before = _cpu(worker.pid)
        for number, records in enumerate(frames):
            worker.send(*records)
            if number >= 8:
                for _ in records:
                    worker.result()
        for _ in range(8 * self.BATCH):
            worker.result()
        cost = (_cpu(worker.pid) - before) / (len(frames) * self.BATCH) * 1e6
        worker.close()
        print("\nworker: %.1f us of CPU a call, batches of %d" % (cost, self.BATCH))
        self.assertLess(cost, 120)


def _cpu(pid):
    with open("/proc/%d/schedstat" % pid) as file:
        return int(file.read().split()[0]) / 1e9


if __name__ == "__main__":
    unittest.main()

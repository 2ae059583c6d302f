"""Workers against the protocol: the Python worker, its zygote, and the worker in Perl."""

import os
import shutil
import signal
import subprocess
import sys
import unittest

from . import node
from starling import _cloudpickle
from starling._worker import wire

# Workers cannot import this module.
_cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Golden(unittest.TestCase):
    """The bytes of docs/worker-protocol.md."""

    def test_call(self):
        data = wire.frame(node.call_record(5, bytes(range(16)), node.json_args(1)))
        expected = (
            "50000000" "4b000000" "03"
            "0500000000000000" "000102030405060708090a0b0c0d0e0f" "0100000000000000"
            "0700000000000000" "0900000000000000" "0000000000000000" "e8030000" "0000" "0100"
            "0003ffff03000000" "5b315d"
        )  # fmt: skip
        self.assertEqual(data.hex(), expected)

    def test_result(self):
        head = wire.RESULT_HEAD.pack(5, 1, 2, 3, 1, 1, 1, 0)
        data = wire.record(wire.RESULT, head + wire.value(0, 3, 0, b"{}"))
        expected = (
            "32000000" "42" "0500000000000000" "0100000000000000" "0200000000000000"
            "0300000000000000" "01" "01" "0100" "00000000" "0003000002000000" "7b7d"
        )  # fmt: skip
        self.assertEqual(data.hex(), expected)

    def test_print_and_fork(self):
        printed = wire.record(wire.PRINT, wire.PRINT_HEAD.pack(5, 1, 0) + b"hi")
        self.assertEqual(
            printed.hex(), "13000000" "43" "0500000000000000" "01" "0000000000000000" "6869"
        )
        fork = wire.json_record(wire.FORK, {"env": {}}, wire.U64.pack(1))
        self.assertEqual(fork, b"\x13\0\0\0\x10\x01\0\0\0\0\0\0\0" + b'{"env": {}}')

    def test_spb1(self):
        from starling._worker import values

        parts = values.spb1(b"p" * 10, [memoryview(b"abc"), memoryview(b"d")])
        data = b"".join(parts)
        self.assertEqual(data[:16], b"SPB1\x02\0\0\0\x0a\0\0\0\0\0\0\0")
        self.assertEqual(data[16:32].hex(), "40000000000000000300000000000000")
        self.assertEqual(data[32:48].hex(), "80000000000000000100000000000000")
        self.assertEqual(data[48:58], b"p" * 10)
        self.assertEqual((data[64:67], data[128:], len(data)), (b"abc", b"d", 129))
        pickled, buffers = values.spb1_parts(memoryview(data))
        self.assertEqual((bytes(pickled), [bytes(b) for b in buffers]), (b"p" * 10, [b"abc", b"d"]))
        for length in (0, 15, 40, 128):
            with self.assertRaises(values.Damaged):
                values.spb1_parts(memoryview(data)[:length])


class Contract:
    """Every worker keeps these, in any language. Subclasses give the functions."""

    def setUp(self):
        self.worker = self.make()

    def tearDown(self):
        self.worker.close()

    def test_no_operation_and_arguments(self):
        result = self.worker.run(self.noop)
        self.assertEqual((result.call, result.status), (1, wire.OK))
        self.assertLessEqual(result.start, result.end)
        result = self.worker.run(self.add, node.json_args(2, 3))
        self.assertEqual((result.status, result.value), (wire.OK, 5))

    def test_inputs_take_the_places_of_slots(self):
        path = os.path.join(self.worker.objects.name, "input")
        with open(path, "w") as file:
            file.write("40")
        inputs = [
            wire.value(wire.FILE, wire.JSON, 0, path.encode()),
            wire.value(wire.INLINE, wire.JSON, 1, b"2"),
        ]
        args = node.json_args({"$slot": 0}, {"$slot": 1})
        result = self.worker.run(self.add, args, inputs=inputs)
        self.assertEqual((result.status, result.value), (wire.OK, 42))

    def test_many_calls_in_one_frame_are_answered_in_order(self):
        key = self.worker.learn(self.add)
        records = [node.call_record(k, key, node.json_args(k, 1)) for k in range(1, 201)]
        self.worker.send(*records)
        for k in range(1, 201):
            result = self.worker.result()
            self.assertEqual((result.call, result.value), (k, k + 1))

    def test_prints_come_before_their_result(self):
        others = []
        result = self.worker.run(self.prints, others=others)
        self.assertEqual(result.status, wire.OK)
        found = {}
        for kind, body in others:
            self.assertEqual(kind, wire.PRINT)
            call, stream, lost = wire.PRINT_HEAD.unpack_from(body)
            self.assertEqual((call, lost), (result.call, 0))
            found[stream] = found.get(stream, b"") + body[wire.PRINT_HEAD.size :]
        self.assertEqual(found, {1: b"to the first\n", 2: b"to the second\n"})
        # The next call starts with empty files.
        self.assertEqual(self.worker.run(self.noop).status, wire.OK)
        self.assertEqual((self.worker.printed(1), self.worker.printed(2)), (b"", b""))

    def test_a_failure_is_an_error_with_its_text(self):
        result = self.worker.run(self.raises)
        self.assertEqual(result.status, wire.RAISED)
        self.assertIn("no such luck", result.error["text"])
        self.assertEqual(self.worker.run(self.noop).status, wire.OK)

    def test_an_unknown_function_is_refused(self):
        self.worker.begin(b"\xee" * 16)
        self.assertEqual(self.worker.result().status, wire.REFUSED)

    def test_a_dropped_function_is_refused(self):
        key = self.worker.learn(self.noop)
        self.worker.send(wire.record(wire.DROP, key))
        self.worker.begin(key)
        self.assertEqual(self.worker.result().status, wire.REFUSED)

    def test_a_large_result_is_a_file(self):
        result = self.worker.run(self.large)
        how, _, _, path = result.values[0]
        self.assertEqual(how, wire.FILE)
        name = "%d.%d.0" % (self.worker.pid, result.call)
        self.assertEqual(path.decode(), os.path.join(self.worker.objects.name, name))
        self.assertEqual(len(result.value), 200_000)

    def test_sigint_ends_the_call_it_is_meant_for(self):
        key = self.worker.learn(self.endless)
        call = self.worker.begin(key)
        self.running(call)
        # A signal for a call that has ended changes nothing.
        self.worker.interrupt(call + 7)
        with self.assertRaises(TimeoutError):
            self.worker.result(wait=0.1)
        self.worker.interrupt(call)
        self.assertEqual(self.worker.result().status, wire.CANCELLED)
        self.assertEqual(self.worker.run(self.noop).status, wire.OK)

    def test_a_call_that_begins_while_its_number_is_there_ends_cancelled(self):
        key = self.worker.learn(self.endless)
        self.worker.parts.word[3] = 1
        self.worker.begin(key)
        self.assertEqual(self.worker.result().status, wire.CANCELLED)

    def test_a_crash_leaves_its_number(self):
        key = self.worker.learn(self.crash)
        call = self.worker.begin(key)
        with self.assertRaises(node.Ended):
            self.worker.result()
        self.assertEqual(self.worker.parts.word[0], call)

    def test_stop_and_end_of_input(self):
        self.worker.send(wire.record(wire.STOP, b""))
        with self.assertRaises(node.Ended):
            self.worker.next_record()

    def test_garbage_ends_the_worker_with_one_line(self):
        for data in (
            wire.U32.pack(wire.FRAME_MAX + 1),
            wire.frame(b"\x01\x00"),
            wire.frame(wire.RECORD.pack(100, wire.CALL) + b"short"),
            wire.frame(wire.record(99, b"")),
            wire.frame(wire.record(wire.CALL, b"short")),
        ):
            with self.subTest(data=data[:12].hex()):
                worker = self.make()
                worker.send_bytes(data)
                with self.assertRaises(node.Ended):
                    worker.next_record()
                self.assertEqual(worker.printed(2).count(b"\n"), 1)
                self.assertIn(b"garbage from the node", worker.printed(2))
                code = worker.close()
                self.assertIn(code, (wire.GARBAGE_EXIT, None))

    def running(self, call):
        self.worker.until_running(call)


def has_perl():
    # A small system has a perl without JSON::PP.
    modules = ["perl", "-MJSON::PP", "-MPOSIX", "-MTime::HiRes", "-e", "1"]
    return shutil.which("perl") is not None and (
        subprocess.run(modules, stderr=subprocess.DEVNULL).returncode == 0
    )


class Perl(Contract, unittest.TestCase):
    noop = wire.value(0, wire.TEXT, 0, b"undef")
    add = wire.value(0, wire.TEXT, 0, b"$_[0] + $_[1]")
    prints = wire.value(0, wire.TEXT, 0, rb'print "to the first\n"; print STDERR "to the second\n"; 0')
    raises = wire.value(0, wire.TEXT, 0, rb'die "no such luck\n"')
    large = wire.value(0, wire.TEXT, 0, b'"x" x 200_000')
    endless = wire.value(0, wire.TEXT, 0, b"my $i = 0; while (1) { $i++ }")
    crash = wire.value(0, wire.TEXT, 0, b"kill 9, $$; sleep 60")

    def make(self):
        if not has_perl():
            self.skipTest("no perl with its standard modules")
        return node.Worker(argv=["perl", str(node.PERL)])


def endless():
    while True:
        pass


def crash():
    os.kill(os.getpid(), signal.SIGKILL)


def prints():
    print("to the first")
    os.write(2, b"to the second\n")


def raises():
    raise ValueError("no such luck")


class PythonFunctions:
    noop = node.python_function(lambda: None)
    add = node.python_function(lambda a, b: a + b)
    prints = node.python_function(prints)
    raises = node.python_function(raises)
    large = node.python_function(lambda: "x" * 200_000)
    endless = node.python_function(endless)
    crash = node.python_function(crash)


class Direct(PythonFunctions, Contract, unittest.TestCase):
    def make(self):
        return node.Worker()

    def test_exit_codes(self):
        self.worker.send(wire.record(wire.STOP, b""))
        self.assertEqual(self.worker.process.wait(node.WAIT), 0)
        other = self.make()
        self.assertEqual(other.close(), 0)


class Forked(PythonFunctions, Contract, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.zygote = node.Zygote()

    @classmethod
    def tearDownClass(cls):
        assert cls.zygote.close() == 0

    def make(self):
        return node.Worker(zygote=self.zygote)

    def test_the_signal_of_a_crash_is_reported(self):
        self.worker.begin(self.worker.learn(self.crash))
        self.assertEqual(os.WTERMSIG(self.zygote.exited(self.worker.pid)), signal.SIGKILL)


if __name__ == "__main__":
    unittest.main()

"""Commands as calls, with files as values."""

import os
import pathlib
import pickle
import subprocess
import tempfile
import time
import unittest

from . import fake_core, node, worker_core  # noqa: F401 (it sets the path)
import starling
from starling import _files, out
from .test_end_to_end import WAIT, _missing


def lines_of(file):
    with open(file) as text:
        return os.path.basename(text.name), len(text.readlines())


def running(mark):
    """The processes with this argument."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            argv = pathlib.Path("/proc", pid, "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if mark.encode() in argv:
            found.append(pid)
    return found


class Files(unittest.TestCase):
    def test_a_file_is_a_value(self):
        file = starling.File("a b.txt", b"x\ny\n")
        self.assertEqual((len(file), file.read(), file.text()), (4, b"x\ny\n", "x\ny\n"))
        self.assertEqual(lines_of(file), ("a b.txt", 2))
        path = file.path
        del file
        self.assertFalse(os.path.exists(path))
        large = starling.File("n", bytes(1 << 20))
        for protocol in (2, 5):
            again = pickle.loads(pickle.dumps(large, protocol))
            self.assertEqual((again.name, again.read()), ("n", bytes(1 << 20)))

    def test_wrong_names(self):
        for name in ("", "..", "a/b", "a\0b"):
            self.assertRaises(ValueError, out, name)


class Commands:
    def client(self):
        raise NotImplementedError

    def test_files_in_and_out(self):
        c = self.client()
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "q.fa")
            path.write_text("b\na\nc\n")
            given = c.file(path)
        first = c.command(["sort", "-o", out("sorted.txt"), given])
        numbers = c.command(["sh", "-c", 'cat "$1" - > "${2#--out=}"; test "$WORD" = said', "sh",
                             first["sorted.txt"], ("--out=", out("all"))],
                            stdin=given, env={"WORD": "said"})  # fmt: skip
        self.assertEqual(c.submit(lines_of, numbers["all"]).result(WAIT), ("all", 6))
        done = numbers.result(WAIT)
        self.assertEqual((done.code, done["all"].text()), (0, "a\nb\nc\nb\na\nc\n"))
        self.assertEqual(first["sorted.txt"].result(WAIT).read(), b"a\nb\nc\n")
        five = c.submit(abs, -5)
        self.assertEqual(c.command(["test", five, "-eq", "5"]).result(WAIT).files, {})
        with self.assertRaises(TypeError):
            iter(first)

    def test_failures(self):
        c = self.client()
        with self.assertRaises(subprocess.CalledProcessError) as caught:
            c.command(["sh", "-c", "exit 3"]).result(WAIT)
        self.assertEqual(caught.exception.returncode, 3)
        done = c.command(["sh", "-c", "exit 3", out("never")], check=False).result(WAIT)
        self.assertEqual((done.code, done["never"]), (3, None))
        with self.assertRaisesRegex(FileNotFoundError, "has not written never"):
            c.command(["true", out("never")]).result(WAIT)
        with self.assertRaisesRegex(FileNotFoundError, "/nowhere/program"):
            c.command(["/nowhere/program"]).result(WAIT)
        self.assertRaises(TypeError, c.command, "ls")
        self.assertRaises(ValueError, c.command, [])


class InThisProcess(Commands, unittest.TestCase):
    def client(self):
        core = fake_core.Core(workers=2)
        self.addCleanup(core.close)
        client = starling.Client(_core=core)
        self.addCleanup(client.close)
        return client


@unittest.skipIf(_missing is not None, _missing)
class OnNodes(Commands, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = starling.LocalCluster(nodes=2, slots=2)
        cls.cluster.__enter__()
        cls.addClassCleanup(cls.cluster.close)
        cls.shared = cls.cluster.client()
        cls.addClassCleanup(cls.shared.close)

    def client(self):
        return self.shared

    def test_printed_text_and_directory(self):
        command = self.shared.command(["sh", "-c", "echo here; pwd; echo there >&2"])
        command.result(WAIT)
        said, place = command.stdout.splitlines()
        self.assertEqual((said, command.stderr), ("here", "there\n"))
        self.assertFalse(os.path.exists(place))
        command = self.shared.options(name="list").command(["pwd"], cwd="/")
        command.result(WAIT)
        self.assertEqual((command.stdout, command._name), ("/\n", "list"))

    def test_a_cancel_ends_the_processes(self):
        mark = "starling-mark-%d" % os.getpid()
        script = 'sh -c "sleep 600; :" $0 & sleep 600; :'
        command = self.shared.command(["sh", "-c", script, mark])
        self.until(lambda: len(running(mark)) >= 2)
        command.cancel(kill=True)
        self.until(lambda: not running(mark))

    def until(self, is_so):
        end = time.monotonic() + WAIT
        while not is_so():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)

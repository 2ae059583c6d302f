"""Runtimes, and options that reach the core."""

import os
import subprocess
import sys
import unittest

from . import node  # noqa: F401 (it sets the path)
import starling
from starling._options import Options
from .fake_core import Core


def add(a, b=1):
    return a + b


class SeesRuntimes(Core):
    """A core that keeps the runtimes of its specs."""

    def __init__(self):
        super().__init__()
        self.runtimes = []

    def open_job(self, *args):
        job = super().open_job(*args)
        make = job.spec

        def spec(options, runtime, *rest):
            self.runtimes.append((options, runtime))
            return make(options, runtime, *rest)

        job.spec = spec
        return job


class Runtimes(unittest.TestCase):
    def setUp(self):
        self.core = SeesRuntimes()
        self.addCleanup(self.core.close)

    def client(self, **options):
        client = starling.Client(_core=self.core, **options)
        self.addCleanup(client.close)
        return client

    def test_the_program_of_workers(self):
        self.client().submit(add, 1).result(10)
        self.client(python="/p", preload=["m"], env={"B": "2", "A": 1}).submit(add, 1).result(10)
        runtime = starling.Runtime("~/p", prologue="module load gcc", memory="1GiB")
        bound = self.client().options(runtime=runtime)
        bound.submit(add, 1).result(10)
        bound.options(memory="2GiB").submit(add, 1).result(10)
        self.client(runtime=runtime).submit(add, 1).result(10)
        found = [runtime for _, runtime in self.core.runtimes]

        plain, given, bash, more, whole = found
        here = ("STARLING_WORKER_CWD_IF_THERE", os.getcwd())
        self.assertEqual(plain, ([sys.executable, "{worker}"], [], [here]))
        self.assertEqual(given, (["/p", "{worker}"], ["m"], [("A", "1"), ("B", "2"), here]))
        self.assertEqual(bash[0][:2], ["bash", "-c"])
        self.assertIn("\nmodule load gcc\n", bash[0][2])
        self.assertEqual(bash[0][3:], [os.path.expanduser("~/p"), "{worker}"])
        self.assertEqual((more, whole), (bash, bash))
        memory = [options["memory_bytes"] for options, _ in self.core.runtimes]
        self.assertEqual(memory, [0, 0, 1 << 30, 2 << 30, 1 << 30])

    def test_a_prologue_that_fails_ends_the_start(self):
        def start(prologue):
            argv = starling.Runtime(prologue=prologue)._fields()[0]
            code = "import os, sys; print(os.environ.get('X'), os.listdir('/proc/self/fd')); 1 // 1"
            run = [*argv[:3], sys.executable, "-c", code]
            return subprocess.run(run, capture_output=True, text=True)

        good = start("export X=7\necho kept >&2\nif false; then echo no; fi\nfalse || true")
        self.assertEqual((good.returncode, good.stderr), (0, "kept\n"))
        self.assertRegex(good.stdout, r"^7 \['0', '1', '2', '\d+'\]$")
        for prologue, code, text in (
            ("no_such_command_x\ntrue", 127, "code 127: .*no_such_command_x: command not found"),
            ("echo first >&2; exit 3", 3, "code 3: first"),
            ("(exit 4)\necho not reached", 4, "code 4"),
        ):
            bad = start(prologue)
            self.assertEqual((bad.returncode, bad.stdout), (code, ""), prologue)
            last = bad.stderr.strip().splitlines()[-1]
            self.assertRegex(last, "^the prologue failed with exit %s$" % text)

    def test_init_runs_once_in_a_worker(self):


        def init():
            import tests.test_runtime as here

            here.BEGUN.append(1)

        runtime = starling.Runtime(init=init)
        del BEGUN[:]
        bound = self.client().options(runtime=runtime, retries=1, retry_on=OSError)
        self.assertEqual([bound.submit(add, k).result(10) for k in range(4)], [1, 2, 3, 4])
        self.assertEqual(BEGUN, [1])
        # The name of the task is that of the function.
        self.assertEqual({options["name"] for options, _ in self.core.runtimes}, {"add"})

    def test_copies(self):
        self.assertEqual(Options().fields("f")["replicas"], 0)
        self.assertEqual(Options().changed({"copies": 2}).fields("f")["replicas"], 2)
        for wrong in (0, 6, "2", True):
            with self.assertRaises(ValueError, msg=wrong):
                Options().changed({"copies": wrong})

    def test_wrong_runtimes(self):
        wrong = ({"preload": "numpy"}, {"preload": [1]}, {"init": 5})
        for options in wrong:
            with self.assertRaises(TypeError, msg=options):
                starling.Runtime(**options)
        with self.assertRaises(ValueError):
            starling.Runtime(memory="much")
        with self.assertRaises(TypeError):
            Options().changed({"runtime": "python3"})
        with self.assertRaises(TypeError):
            self.client(python="/p", runtime=starling.Runtime())
        self.assertIn("Runtime('/p'", repr(starling.Runtime("/p", preload=["m"])))


BEGUN = []

if __name__ == "__main__":
    unittest.main()

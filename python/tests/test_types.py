"""The types of the package: a user's program, and the stubs beside what they describe."""

import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from . import node  # noqa: F401 (it sets the path)
import starling
from .test_end_to_end import _missing

HERE = pathlib.Path(__file__).resolve().parent
# The stubs are checked; what is behind them has few annotations.
SETTINGS = """[mypy]
strict = True
[mypy-starling.*]
ignore_errors = True
[mypy-starling._core]
ignore_errors = False
"""


@unittest.skipIf(importlib.util.find_spec("mypy") is None, "mypy is not installed")
class Types(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.settings = self.folder / "mypy.ini"
        self.settings.write_text(SETTINGS)

    def mypy(self, *arguments):
        package = pathlib.Path(starling.__file__).resolve().parent.parent
        environment = {**os.environ, "MYPYPATH": str(package), "PYTHONPATH": str(package)}
        command = [sys.executable, "-m", *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, cwd=self.folder
        )
        return done.returncode, done.stdout + done.stderr

    def test_a_program_of_a_user(self):
        settings = ["--config-file", str(self.settings)]
        code, said = self.mypy("mypy", *settings, str(HERE / "typed_program.py"))
        self.assertEqual(code, 0, said)
        wrong = self.folder / "wrong.py"
        wrong.write_text("import starling\nx: str = starling.Client().submit(len, [1]).result()\n")
        code, said = self.mypy("mypy", *settings, str(wrong))
        self.assertEqual(code, 1, said)
        self.assertIn("wrong.py:2: error: Incompatible types", said)

    @unittest.skipIf(_missing is not None, _missing)
    def test_the_stubs_are_those_of_the_package_and_its_core(self):
        code, said = self.mypy(
            "mypy.stubtest", "--concise", "--mypy-config-file", str(self.settings), "starling"
        )
        # Its modules without stubs are of no interest.
        ours = [line for line in said.splitlines() if is_of_stubs(line)]
        self.assertEqual(ours, [], said)
        self.assertNotIn("not checked due to", said)


def is_of_stubs(line):
    path = line.partition(" ")[0].split(".")
    if len(path) < 2 or path[0] != "starling":
        return False
    return path[1] == "_core" or importlib.util.find_spec("starling." + path[1]) is None

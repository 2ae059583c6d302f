"""Benchmarks of WfCommons as workflow files, and a run of one with a stand-in of its program."""

import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import tomllib
import unittest

from . import node  # noqa: F401 (it sets the path)
from starling import wfbench
from .test_end_to_end import WAIT, _missing

# What it does of the real one: it needs its inputs, and writes outputs of the given sizes.
STAND_IN = """#!%s
import argparse, json, os
parser = argparse.ArgumentParser()
parser.add_argument("--name", required=True)
parser.add_argument("--percent-cpu", type=float, required=True)
parser.add_argument("--cpu-work", type=int)
parser.add_argument("--input-files", default="[]")
parser.add_argument("--output-files", default="{}")
options = parser.parse_args()
for name in json.loads(options.input_files):
    assert os.path.getsize(name) > 0, name
for name, size in json.loads(options.output_files).items():
    with open(name, "wb") as file:
        file.write(b"x" * size)
"""


def task(name, inputs, outputs, parents=(), cores=1, **more):
    """The two parts of a task in WfFormat 1.6."""
    arguments = ["--name %s" % name, "--percent-cpu 0.6", "--cpu-work 2"]
    arguments += ["--output-files %r" % outputs, "--input-files %r" % inputs]
    command = {"program": "wfbench", "arguments": arguments}
    kind = name.partition("_")[0]
    specification = {"id": name, "name": kind, "parents": list(parents), "children": []}
    specification.update(inputFiles=inputs, outputFiles=list(outputs))
    return specification, {"id": name, "coreCount": cores, "command": command, **more}


def benchmark():
    parts = [
        task("split_1", ["in it's 1"], {"a": 100, "b\u00e9": 200}),
        task("blast_2", ["a"], {"c": 300}, ["split_1"], cores=2),
        task("blast_3", ["b\u00e9", "data/extra"], {"d": 400}, ["split_1"]),
        # Its second parent is implied by no file.
        task("last_4", ["c"], {"e": 500}, ["blast_2", "blast_3"]),
    ]
    files = [{"id": "in it's 1", "sizeInBytes": 50}, {"id": "data/extra", "sizeInBytes": 2_500_000}]
    specification = {"tasks": [one for one, _ in parts], "files": files}
    execution = {"tasks": [two for _, two in parts]}
    return {
        "name": "small",
        "schemaVersion": "1.6",
        "workflow": {"specification": specification, "execution": execution},
    }


class Translation(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.source = self.folder / "in" / "small.json"
        self.source.parent.mkdir()
        self.write(benchmark())
        self.program = self.folder / "wfbench"
        self.program.write_text(STAND_IN % sys.executable)
        self.program.chmod(0o755)

    def write(self, data):
        self.source.write_text(json.dumps(data), encoding="utf-8")

    def translate(self, **options):
        translator = wfbench.StarlingTranslator(self.source, program=str(self.program), **options)
        return translator.translate(self.folder / "out")

    def test_the_workflow_file(self):
        found = tomllib.loads(self.translate().read_text(encoding="utf-8"))
        self.assertEqual(found["name"], "small")
        split, second, third, last = found["task"]
        self.assertEqual((split["name"], split["kind"]), ("split_1", "split"))
        command = [str(self.program), "--name", "split_1", "--percent-cpu", "0.6", "--cpu-work", "2"]
        command += ["--output-files", '{"a": 100, "b\\u00e9": 200}']
        command += ["--input-files", '["in it\'s 1"]']
        self.assertEqual(split["command"], command)
        self.assertEqual((second["cpus"], third.get("cpus")), (2, None))
        self.assertEqual(list(third["inputs"].values()), ["b\u00e9", "data/extra"])
        self.assertEqual(list(last["outputs"].values()), [{"file": "e", "keep": True}])
        self.assertEqual(list(split["outputs"].values()), ["a", "b\u00e9"])
        self.assertEqual(last["after"], ["blast_3"])
        self.assertNotIn("after", second)

    def test_inputs(self):
        (self.folder / "in" / "in it's 1").write_text("mine")
        self.translate()
        self.assertEqual((self.folder / "out" / "in it's 1").read_text(), "mine")
        self.assertEqual((self.folder / "out" / "data" / "extra").stat().st_size, 2_500_000)
        self.assertFalse((self.folder / "out" / "a").exists())
        # Into its own folder.
        wfbench.StarlingTranslator(self.source).translate(self.source.parent)
        self.assertEqual((self.folder / "in" / "in it's 1").read_text(), "mine")

    def test_a_workflow_of_wfcommons(self):
        class Workflow:
            def write_json(self, path):
                path.write_text(json.dumps(benchmark()))

        translator = wfbench.StarlingTranslator(Workflow(), keep="all")
        path = translator.translate(self.folder / "out")
        kept = tomllib.loads(path.read_text(encoding="utf-8"))["task"][0]["outputs"]
        self.assertTrue(all(output["keep"] for output in kept.values()))

    def test_wrong_files(self):
        def refusal(change):
            data = benchmark()
            change(data["workflow"])
            self.write(data)
            said = io.StringIO()
            with contextlib.redirect_stderr(said):
                code = wfbench.main([str(self.source), "-o", str(self.folder / "out")])
            self.assertEqual(code, 1)
            return said.getvalue()

        no_command = refusal(lambda flow: flow["execution"]["tasks"][1].pop("command"))
        self.assertIn("task blast_2 has no command; WorkflowBenchmark", no_command)
        self.assertIn("task split_1 has no command", refusal(lambda flow: flow.pop("execution")))
        old = refusal(lambda flow: flow.pop("specification"))
        self.assertIn("no WfFormat of version 1.5 or 1.6", old)
        for path in ("/etc/x", "../x"):
            change = lambda flow: flow["specification"]["tasks"][0]["inputFiles"].append(path)
            self.assertIn("is not below the workflow", refusal(change))
        self.assertRaises(ValueError, wfbench.StarlingTranslator, self.source, keep="some")

    @unittest.skipIf(_missing is not None, _missing)
    def test_a_run(self):
        from starling._binary import find_binary

        path, results = self.translate(keep="all"), self.folder / "results"
        command = [find_binary(), "run", "--nodes", "2", "--slots", "2", "--json", str(path)]
        command += ["--output", str(results)]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(command, capture_output=True, timeout=WAIT, env=environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        sizes = {name: (results / name).stat().st_size for name in os.listdir(results)}
        self.assertEqual(sizes, {"a": 100, "b\u00e9": 200, "c": 300, "d": 400, "e": 500})

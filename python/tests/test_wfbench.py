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
from unittest import mock

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

    def refused(self, change, text):
        data = benchmark()
        self.write(change(data, data["workflow"]) or data)
        self.refused_file(text)

    def refused_file(self, text):
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            code = wfbench.main([str(self.source), "-o", str(self.folder / "out")])
        self.assertEqual(code, 1)
        self.assertRegex(said.getvalue(), "^error: [^\n]*%s[^\n]*\n$" % text)

    def test_fields_that_are_missing_or_wrong(self):
        def of_task(key, *value, part="specification"):
            def change(_, flow):
                task = flow[part]["tasks"][1]
                task.update({key: value[0]}) if value else task.pop(key)

            return change

        def of_flow(key, value):
            return lambda _, flow: flow.update({key: value})

        def of_command(value):
            return of_task("command", value, part="execution")

        cases = [
            (of_task("id"), "entry 1 of specification.tasks has no field id"),
            (of_task("name"), "task blast_2 has no field name"),
            (of_task("name", 7), "task blast_2: the field name is 7, not a text"),
            (of_task("parents", "x"), "task blast_2: the field parents is 'x', not a list"),
            (of_task("inputFiles", [[]]), r"task blast_2: inputFiles has \[\], not a text"),
            (of_task("id", part="execution"), "entry 1 of execution.tasks has no field id"),
            (of_task("coreCount", "two", part="execution"), "coreCount is 'two', not a number"),
            (of_task("coreCount", -1, part="execution"), "coreCount is -1, not a number"),
            (of_command("run"), "the field command is 'run', not an object"),
            (of_command({"program": 1}), "the field program is 1, not a text"),
            (of_command({"program": "x", "arguments": [1]}), "arguments has 1, not a text"),
            (of_flow("specification", {}), "the specification has no field tasks"),
            (of_flow("execution", {"tasks": [3]}), "tasks has 3, not an object"),
            (lambda *_: ["x"], r"the file is \['x'\], not an object"),
            (lambda data, _: data.update(workflow=3), "the field workflow is 3, not an object"),
            (lambda data, _: data.update(name=3), "the field name is 3, not a text"),
        ]
        for change, text in cases:
            with self.subTest(text):
                self.refused(change, text)
        self.source.write_text("[1,")
        self.refused_file("small.json is no JSON: ")

    def test_arguments_that_cannot_be_read(self):
        unread = ["--output-files {'a': ", "--input-files f(1)", "--output-files {1, 2}", "--name 'x"]
        for argument in unread:

            def change(_, flow):
                flow["execution"]["tasks"][1]["command"]["arguments"] = [argument]

            with self.subTest(argument):
                self.refused(change, "task blast_2: the argument .* cannot be read: ")

    def test_sizes_of_inputs(self):
        def sized(size):
            return lambda _, flow: flow["specification"]["files"][1].update(sizeInBytes=size)

        for size in (-1, "x", float("inf"), float("nan"), None):
            with self.subTest(size):
                text = "file data/extra: the field sizeInBytes is .*, not a number"
                self.refused(sized(size), text)
        text = "inputs of %d bytes are too large; the limit is" % ((1 << 62) + 50)
        self.refused(sized(1 << 62), text)
        with mock.patch.object(wfbench.shutil, "disk_usage") as usage:
            usage.return_value.free = 1000
            text = "inputs of 1051 bytes do not fit in .*out, which has room for 1000"
            self.refused(sized(1001), text)
        self.assertEqual(list((self.folder / "out").iterdir()), [])

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

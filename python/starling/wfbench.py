"""Benchmarks of WfCommons as workflows of Starling.

    python -m starling.wfbench blast-benchmark-45.json --output blast
    starling run blast/workflow.toml --output blast/results

It reads WfFormat 1.5 and 1.6 with commands, as `WorkflowBenchmark.create_benchmark` writes it.
wfcommons itself is needed only where its program `wfbench` runs.
"""

import argparse
import ast
import json
import os
import pathlib
import shlex
import shutil
import sys
import tempfile

# Their values are Python literals in WfFormat, and JSON for the program.
_LITERALS = ("--output-files", "--input-files")
_CHUNK = bytes(1 << 20)


class StarlingTranslator:
    """In the shape of the translators of wfcommons: a path or its `Workflow`, then `translate`.

    `program`: the path of `wfbench` on the nodes; without it the one in PATH here. `keep`: which
    outputs are results of a run: those that no task reads ("last"), all of them ("all").
    """

    def __init__(self, workflow, logger=None, *, program=None, keep="last"):
        if keep not in ("last", "all"):
            raise ValueError('keep is "last" or "all", not %r' % (keep,))
        self.logger, self.keep = logger, keep
        self.folder = None
        if hasattr(workflow, "write_json"):
            with tempfile.TemporaryDirectory() as folder:
                file = pathlib.Path(folder, "workflow.json")
                workflow.write_json(file)
                self.data = json.loads(file.read_text(encoding="utf-8"))
        else:
            self.folder = pathlib.Path(workflow).absolute().parent
            self.data = json.loads(pathlib.Path(workflow).read_text(encoding="utf-8"))
        self.program = program or shutil.which("wfbench") or "wfbench"
        self.name, self.tasks, self.sizes = read(self.data)

    def translate(self, output_folder):
        """Writes `workflow.toml` and the inputs of the workflow into a folder; returns the path."""
        folder = pathlib.Path(output_folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.write_inputs(folder)
        path = folder / "workflow.toml"
        path.write_text(self.toml(), encoding="utf-8")
        return path

    def toml(self):
        """The text of the workflow file."""
        made = {file: task["id"] for task in self.tasks for file in task["outputs"]}
        read_files = {file for task in self.tasks for file in task["inputs"]}
        lines = ["name = %s" % quoted(self.name)]
        for task in self.tasks:
            inputs = {"f%d" % k: file for k, file in enumerate(task["inputs"])}
            outputs = {"f%d" % k: file for k, file in enumerate(task["outputs"])}
            lines += ["", "[[task]]", "name = %s" % quoted(task["id"]), "kind = %s" % quoted(task["kind"])]
            lines.append("command = [%s]" % ", ".join(map(quoted, self.command(task))))
            if task["cores"] > 1:
                lines.append("cpus = %d" % task["cores"])
            if inputs:
                lines.append("inputs = { %s }" % ", ".join("%s = %s" % (k, quoted(v)) for k, v in inputs.items()))
            if outputs:
                kept = [self._output(key, file, read_files) for key, file in outputs.items()]
                lines.append("outputs = { %s }" % ", ".join(kept))
            implied = {made[file] for file in task["inputs"] if file in made}
            after = [parent for parent in task["parents"] if parent not in implied]
            if after:
                lines.append("after = [%s]" % ", ".join(map(quoted, after)))
        return "\n".join(lines) + "\n"

    def _output(self, key, file, read_files):
        if self.keep == "all" or file not in read_files:
            return "%s = { file = %s, keep = true }" % (key, quoted(file))
        return "%s = %s" % (key, quoted(file))

    def command(self, task):
        program, arguments = task["command"]
        if program == "wfbench":
            program = self.program
        found = [program]
        for argument in arguments:
            flag, _, value = argument.partition(" ")
            if flag in _LITERALS:
                found += [flag, json.dumps(ast.literal_eval(value))]
            elif flag.startswith("--") and value:
                found += [flag, *shlex.split(value)]
            else:
                found.append(argument)
        return found

    def write_inputs(self, folder):
        """Copies the files that no task makes, or makes them with their sizes."""
        made = {file for task in self.tasks for file in task["outputs"]}
        for file in sorted({file for task in self.tasks for file in task["inputs"]} - made):
            target = folder / file
            target.parent.mkdir(parents=True, exist_ok=True)
            places = [self.folder / file, self.folder / "data" / file] if self.folder else []
            source = next((place for place in places if place.is_file()), None)
            if source is None:
                write_zeros(target, self.sizes.get(file, 0))
            elif not target.exists() or not os.path.samefile(source, target):
                shutil.copyfile(source, target)


def read(data):
    """The name, the tasks, and the sizes of files of a workflow."""
    workflow = data.get("workflow", {})
    specification, execution = workflow.get("specification"), workflow.get("execution")
    if not isinstance(specification, dict):
        raise ValueError("no WfFormat of version 1.5 or 1.6: workflow.specification is missing")
    runs = {run["id"]: run for run in (execution or {}).get("tasks", ())}
    tasks = []
    for task in specification["tasks"]:
        run = runs.get(task["id"], {})
        command = run.get("command") or {}
        if not command.get("program"):
            text = "task %s has no command; WorkflowBenchmark of wfcommons makes workflows with commands"
            raise ValueError(text % task["id"])
        tasks.append(
            {
                "id": task["id"],
                "kind": task["name"],
                "parents": task.get("parents", []),
                "inputs": list(dict.fromkeys(task.get("inputFiles", []))),
                "outputs": list(dict.fromkeys(task.get("outputFiles", []))),
                "cores": int(run.get("coreCount") or 1),
                "command": (command["program"], command.get("arguments", [])),
            }
        )
    files = specification.get("files", [])
    sizes = {file["id"]: int(file.get("sizeInBytes", 0)) for file in files}
    for task in tasks:
        for file in task["inputs"] + task["outputs"]:
            path = pathlib.PurePosixPath(file)
            if path.is_absolute() or ".." in path.parts:
                raise ValueError("task %s: the file %s is not below the workflow" % (task["id"], file))
    return data.get("name") or "workflow", tasks, sizes


def quoted(text):
    """A basic string of TOML, whose escapes are those of JSON."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def write_zeros(path, size):
    with open(path, "wb") as file:
        while size > 0:
            size -= file.write(_CHUNK[: min(size, len(_CHUNK))])


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m starling.wfbench", description=__doc__.split("\n")[0])
    parser.add_argument("workflow", help="a benchmark of WfCommons (WfFormat with commands)")
    parser.add_argument("--output", "-o", required=True, help="the folder of the workflow file")
    parser.add_argument("--program", help="wfbench on the nodes [default: the one in PATH here]")
    parser.add_argument("--keep", choices=("last", "all"), default="last", help="outputs that are results")
    options = parser.parse_args(argv)
    try:
        translator = StarlingTranslator(options.workflow, program=options.program, keep=options.keep)
        path = translator.translate(options.output)
    except (OSError, ValueError) as error:
        print("error: %s" % error, file=sys.stderr)
        return 1
    print("%d tasks: starling run %s" % (len(translator.tasks), shlex.quote(str(path))))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Benchmarks of WfCommons as workflows of Starling.

    python -m starling.wfbench blast-benchmark-45.json --output blast
    starling run blast/workflow.toml --output blast/results

It reads WfFormat 1.5 and 1.6 with commands, as `WorkflowBenchmark.create_benchmark` writes it.
wfcommons itself is needed only where its program `wfbench` runs.
"""

import argparse
import ast
import json
import math
import os
import pathlib
import shlex
import shutil
import sys
import tempfile

# Their values are Python literals in WfFormat, and JSON for the program.
_LITERALS = ("--output-files", "--input-files")
_CHUNK = bytes(1 << 20)
# Bytes of all inputs that are made because no file has them.
MADE_BYTES_MAX = 1 << 40
_KINDS = {dict: "an object", list: "a list", str: "a text", float: "a number of at least 0"}


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
                self.data = loaded(file)
        else:
            self.folder = pathlib.Path(workflow).absolute().parent
            self.data = loaded(workflow)
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
            try:
                found += words(argument)
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError) as error:
                text = "task %s: the argument %.200r cannot be read: %s"
                raise ValueError(text % (task["id"], argument, error)) from error
        return found

    def write_inputs(self, folder):
        """Copies the files that no task makes, or makes them with their sizes."""
        made = {file for task in self.tasks for file in task["outputs"]}
        files = sorted({file for task in self.tasks for file in task["inputs"]} - made)
        sources = {file: self._source(file) for file in files}
        _check_room(folder, sum(self.sizes.get(file, 0) for file in files if sources[file] is None))
        for file, source in sources.items():
            target = folder / file
            target.parent.mkdir(parents=True, exist_ok=True)
            if source is None:
                write_zeros(target, self.sizes.get(file, 0))
            elif not target.exists() or not os.path.samefile(source, target):
                shutil.copyfile(source, target)

    def _source(self, file):
        """The file beside the benchmark, if it is there."""
        places = [self.folder / file, self.folder / "data" / file] if self.folder else []
        return next((place for place in places if place.is_file()), None)


def words(argument):
    """The words of a command for an argument of WfFormat."""
    flag, _, value = argument.partition(" ")
    if flag in _LITERALS:
        return [flag, json.dumps(ast.literal_eval(value))]
    if flag.startswith("--") and value:
        return [flag, *shlex.split(value)]
    return [argument]


def _check_room(folder, size):
    if size > MADE_BYTES_MAX:
        text = "inputs of %d bytes are too large; the limit is %d bytes"
        raise ValueError(text % (size, MADE_BYTES_MAX))
    room = shutil.disk_usage(folder).free
    if size > room:
        text = "inputs of %d bytes do not fit in %s, which has room for %d"
        raise ValueError(text % (size, folder, room))


def loaded(path):
    """The object of a JSON file."""
    try:
        return json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError("%s is no JSON: %s" % (path, error)) from error


# Fields of the file. `where` names the object of a field in errors.


def checked(value, kind, text):
    if kind is float:
        is_right = type(value) in (int, float) and 0 <= value < math.inf
    else:
        is_right = isinstance(value, kind)
    if not is_right:
        raise ValueError("%s %.200r, not %s" % (text, value, _KINDS[kind]))
    return value


def field(part, key, kind, where, default=None):
    """A field of an object; without a default it must be there."""
    if key not in part:
        if default is None:
            raise ValueError("%s has no field %s" % (where, key))
        return default
    return checked(part[key], kind, "%s: the field %s is" % (where, key))


def parts(part, key, kind, where, default=None):
    """A field that is a list with entries of one type."""
    found = field(part, key, list, where, default)
    return [checked(entry, kind, "%s: %s has" % (where, key)) for entry in found]


def read(data):
    """The name, the tasks, and the sizes of files of a workflow."""
    workflow = field(checked(data, dict, "the file is"), "workflow", dict, "the file", {})
    specification = workflow.get("specification")
    if not isinstance(specification, dict):
        raise ValueError("no WfFormat of version 1.5 or 1.6: workflow.specification is missing")
    runs = {}
    execution = workflow.get("execution") or {}
    execution = checked(execution, dict, "workflow: the field execution is")
    for k, run in enumerate(parts(execution, "tasks", dict, "the execution", [])):
        runs[field(run, "id", str, "entry %d of execution.tasks" % k)] = run
    entries = enumerate(parts(specification, "tasks", dict, "the specification"))
    tasks = [read_task(task, runs, "entry %d of specification.tasks" % k) for k, task in entries]
    sizes = {}
    for k, file in enumerate(parts(specification, "files", dict, "the specification", [])):
        name = field(file, "id", str, "entry %d of specification.files" % k)
        sizes[name] = int(field(file, "sizeInBytes", float, "file %s" % name, 0))
    return field(data, "name", str, "the file", "") or "workflow", tasks, sizes


def read_task(task, runs, where):
    name = field(task, "id", str, where)
    where, run = "task %s" % name, runs.get(name, {})
    command = checked(run.get("command") or {}, dict, "%s: the field command is" % where)
    if not command.get("program"):
        text = "%s has no command; WorkflowBenchmark of wfcommons makes workflows with commands"
        raise ValueError(text % where)
    program = field(command, "program", str, where)
    found = {
        "id": name,
        "kind": field(task, "name", str, where),
        "parents": parts(task, "parents", str, where, []),
        "inputs": list(dict.fromkeys(parts(task, "inputFiles", str, where, []))),
        "outputs": list(dict.fromkeys(parts(task, "outputFiles", str, where, []))),
        "cores": int(checked(run.get("coreCount") or 1, float, "%s: coreCount is" % where)),
        "command": (program, parts(command, "arguments", str, where, [])),
    }
    for file in found["inputs"] + found["outputs"]:
        path = pathlib.PurePosixPath(file)
        if path.is_absolute() or ".." in path.parts:
            raise ValueError("%s: the file %s is not below the workflow" % (where, file))
    return found


def quoted(text):
    """A basic string of TOML. Its escapes are those of JSON."""
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

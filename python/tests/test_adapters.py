"""Adapters for other libraries, in this process and in real workers.

Each is skipped without its library.
"""

import importlib
import os
import signal
import tempfile
import threading
import time
import unittest

from . import fake_core, node, worker_core

import starling
from starling._errors import CannotPickle


WAIT = 120
# What the adapters need.
LIBRARIES = ("dask._task_spec", "joblib", "parsl", "snakemake.api")


def missing(name):
    """Why the tests of a library cannot run; None if they can."""
    try:
        importlib.import_module(name)
    except Exception as error:
        # An old or damaged library may raise anything.
        return "%s cannot be loaded: %s: %s" % (name, type(error).__name__, error)
    return None


def unless(name):
    reason = missing(name)
    return unittest.skipIf(reason is not None, reason)


def client(case, **options):
    found = starling.Client(name="test", _core=case.core(**options))
    case.addCleanup(found.close)
    return found


def add(a, b=1):
    return a + b


@unless("dask._task_spec")
class Dask(unittest.TestCase):
    core = fake_core.Core

    def setUp(self):
        import dask
        import starling.dask

        self.dask = dask
        self.client = client(self)
        self.scheduler = starling.dask.StarlingClient(self.client)

    def test_graphs(self):
        get = self.scheduler.get
        graph = {"x": 1, "y": (add, "x", 10), "z": (add, "y", "x"), "same": "z"}
        graph["unused"] = (divmod, 1, 0)
        self.assertEqual(get(graph, "z"), 12)
        self.assertEqual(get(graph, ["x", ["z", "same"]]), (1, (12, 12)))
        with self.assertRaises(KeyError):
            get(graph, "no such key")
        # A task of the graph is a call, under the name of its key.
        self.assertEqual([name for _, name in self.client._core.tasks(1)][:2], ["y", "z"])

    def test_delayed(self):
        x = self.dask.delayed(add)(1)
        y = self.dask.delayed(add)(x, x)
        self.assertEqual(y.compute(scheduler=self.scheduler), 4)
        self.assertEqual(self.dask.compute(x, y, scheduler=self.scheduler), (2, 4))
        self.assertEqual(y.compute(scheduler=starling.dask.get), 4)
        with self.dask.config.set(scheduler=self.scheduler):
            self.assertEqual(y.compute(), 4)

    def test_the_error_is_that_of_the_first_failure(self):
        bad = self.dask.delayed(add)(1, "x")
        for _ in range(3):
            bad = self.dask.delayed(add)(bad, 1)
        with self.assertRaises(TypeError) as caught:
            bad.compute(scheduler=self.scheduler)
        self.assertIn("'add'", caught.exception.__notes__[0])

    def test_many_small_values(self):
        graph = {k: bytes([k % 256]) * 500 for k in range(700)}
        graph["all"] = (lambda parts: sum(map(len, parts)), list(range(700)))
        self.assertEqual(self.scheduler.get(graph, "all"), 350_000)

    def test_a_held_value_in_data(self):
        (held,) = self.scheduler.compute(self.dask.delayed(add)(1))
        node = importlib.import_module("dask._task_spec").DataNode("x", {"a": [held]})
        self.assertEqual(self.scheduler.get({"x": node}, "x"), {"a": [2]})

    def test_many_inputs_and_large_data(self):
        parts = [self.dask.delayed(add)(k) for k in range(1200)]
        total = self.dask.delayed(sum)(parts)
        self.assertEqual(total.compute(scheduler=self.scheduler), sum(range(1201)))
        data = os.urandom(20_000)
        size = self.dask.delayed(len)(self.dask.delayed(data))
        self.assertEqual(size.compute(scheduler=self.scheduler), 20_000)

    def test_persist(self):
        x = self.dask.delayed(add)(1)
        calls = lambda: self.client._job.next  # noqa: E731
        kept = self.scheduler.persist(x)
        before = calls()
        self.assertEqual(self.dask.delayed(add)(kept, 5).compute(scheduler=self.scheduler), 7)
        self.assertEqual(calls(), before + 1)
        (again,) = self.dask.persist(x, scheduler=self.scheduler)
        self.assertEqual(again.compute(scheduler=self.scheduler), 2)
        held = self.scheduler.compute(x, self.dask.delayed(add)(x))
        self.assertEqual(self.scheduler.gather({"a": list(held)}), {"a": [2, 3]})
        self.assertEqual(self.client.submit(add, held[0]).result(WAIT), 3)

    def test_all_schedulers_of_a_client_know_what_is_persisted(self):
        from starling.dask import StarlingClient

        kept = StarlingClient(self.client).persist(self.dask.delayed(add)(1, dask_key_name="x"))
        self.assertEqual(self.dask.delayed(add)(kept).compute(scheduler=self.scheduler), 3)
        other = StarlingClient(client(self))
        with self.assertRaisesRegex(ValueError, "belongs to another client"):
            self.dask.delayed(add)(kept).compute(scheduler=other)
        # Dask drops what is its own key.
        with self.assertRaisesRegex(KeyError, "'x' is not in the graph.*by another client"):
            other.get({"y": (add, "x")}, "x")

    def test_two_of_one_key(self):
        x = self.dask.delayed(add)(1, dask_key_name="x")
        first = self.scheduler.persist(x)
        second = self.scheduler.persist(x)
        del second
        self.assertEqual(self.dask.delayed(add)(first).compute(scheduler=self.scheduler), 3)
        self.assertEqual(list(self.scheduler._held.refs), ["x"])
        del first
        self.assertEqual(self.scheduler._held.refs, {})

    def test_annotations(self):
        with self.dask.annotate(retries=2, resources={"MEMORY": "1MiB"}):
            x = self.dask.delayed(add)(1)
        self.assertEqual(self.dask.delayed(add)(x).compute(scheduler=self.scheduler), 3)
        specs = [spec[0] for _, spec in self.client._job.all]
        chosen = [(spec["retries"], spec["memory_bytes"]) for spec in specs]
        self.assertEqual(chosen, [(2, 1 << 20), (0, 0)])

    def test_annotations_ask_for_resources(self):
        from starling.dask import _options_of

        given = {"resources": {"GPU": 1.0, "licence": 2, "MEMORY": 5}, "priority": 3, "other": 1}
        expected = {"gpus": 1.0, "memory": 5, "priority": 3, "resources": {"licence": 2}}
        self.assertEqual(_options_of(given), expected)
        self.assertEqual(_options_of({"other": 1}), {})

    def test_what_cannot_be_pickled_is_named(self):
        graph = {"lock": threading.Lock(), "x": (add, "lock")}
        with self.assertRaises(CannotPickle) as caught:
            self.scheduler.get(graph, "x")
        self.assertEqual(caught.exception.path, "graph['lock']")

    @unless("numpy")
    def test_arrays(self):
        array = importlib.import_module("dask.array")
        x = array.arange(10_000, chunks=1000)
        self.assertEqual(int((x + x[::-1]).sum().compute(scheduler=self.scheduler)), 99_990_000)
        (kept,) = self.dask.persist(x, scheduler=self.scheduler)
        self.assertEqual(int(kept.sum().compute(scheduler=self.scheduler)), 49_995_000)


class DaskInWorkers(Dask):
    core = worker_core.Core


@unless("joblib")
class Joblib(unittest.TestCase):
    core = fake_core.Core

    def setUp(self):
        import joblib
        import starling.joblib  # noqa: F401 (it registers the backend)

        self.joblib = joblib
        self.client = client(self, workers=4)

    def run_all(self, *calls, **options):
        options = {"n_jobs": 2, "backend": "starling", **options}
        return self.joblib.Parallel(**options)(calls)

    def test_calls(self):
        delayed = self.joblib.delayed
        found = self.run_all(*(delayed(add)(k, b=2) for k in range(50)))
        self.assertEqual(found, list(range(2, 52)))
        found = self.run_all(*(delayed(add)(k) for k in range(5)), return_as="generator")
        self.assertEqual(list(found), [1, 2, 3, 4, 5])
        self.assertGreater(self.client._job.next, 1)

    def test_parallel_config(self):
        with self.joblib.parallel_config("starling", client=self.client, memory="1MiB"):
            found = self.joblib.Parallel()(self.joblib.delayed(add)(k) for k in range(4))
        self.assertEqual(found, [1, 2, 3, 4])
        specs = [spec[0] for _, spec in self.client._job.all]
        found = {(spec["name"], spec["memory_bytes"]) for spec in specs}
        self.assertEqual(found, {("add", 1 << 20)})

    def test_numbers_of_jobs(self):
        backend = starling.joblib.Backend(client=self.client)
        found = [backend.effective_n_jobs(n) for n in (None, 1, 3, -1, -2, -9)]
        self.assertEqual(found, [1, 1, 3, 4, 3, 1])
        with self.assertRaises(ValueError):
            backend.effective_n_jobs(0)

    def test_errors(self):
        delayed = self.joblib.delayed
        with self.assertRaises(ZeroDivisionError):
            self.run_all(*(delayed(divmod)(1, k) for k in (1, 0, 1)))
        self.assertEqual(self.run_all(delayed(add)(1), delayed(add)(2)), [2, 3])

    def test_an_argument_that_cannot_be_pickled(self):
        delayed = self.joblib.delayed
        args = [*range(19), threading.Lock()]
        with self.assertRaises(CannotPickle):
            self.run_all(*(delayed(add)(arg) for arg in args), batch_size=1)

    def test_clients(self):
        from starling._client import Chosen

        given, found = Chosen(self.client, "x"), Chosen(None, "x")
        self.assertIs(given.client(), self.client)
        self.assertIs(found.client(), self.client)
        self.client.close()
        other = client(self)
        self.assertIs(given.client(), self.client)
        self.assertIs(found.client(), other)

    def test_a_large_argument_is_stored_once(self):
        data = os.urandom(100_000)
        delayed = self.joblib.delayed
        found = self.run_all(*(delayed(lambda d, k: len(d) + k)(data, k) for k in range(6)))
        self.assertEqual(found, [100_000 + k for k in range(6)])
        self.assertEqual(len(self.client._core.kv), 1)


class JoblibInWorkers(Joblib):
    core = worker_core.Core

    def test_a_nested_use_has_threads(self):
        delayed = self.joblib.delayed

        found = self.run_all(*(delayed(_nested)(n) for n in range(3)))
        self.assertEqual(found, [([0, n, 2 * n], True) for n in range(3)])


def _nested(n):
    import joblib

    inner = joblib.delayed(lambda k: (k * n, os.getpid()))
    found = joblib.Parallel(n_jobs=2, backend="starling")(inner(k) for k in range(3))
    return [value for value, _ in found], {pid for _, pid in found} == {os.getpid()}


@unless("parsl")
class Parsl(unittest.TestCase):
    core = fake_core.Core

    def setUp(self):
        import parsl
        import starling.parsl

        self.client = client(self)
        folder = tempfile.TemporaryDirectory(prefix="starling-parsl-")
        self.addCleanup(folder.cleanup)
        executor = starling.parsl.Executor(client=self.client)
        config = parsl.Config(
            executors=[executor], strategy="none", run_dir=folder.name, initialize_logging=False
        )
        self.folder, self.parsl = folder.name, parsl
        self.kernel = parsl.DataFlowKernel(config)
        self.addCleanup(self.kernel.cleanup)

    def app(self, fn):
        return self.parsl.python_app(fn, data_flow_kernel=self.kernel)

    def test_apps(self):
        app = self.app(add)
        self.assertEqual(app(app(1), b=app(2)).result(WAIT), 5)
        with self.assertRaises(TypeError):
            app(1, "x").result(WAIT)
        out = os.path.join(self.folder, "out")
        echo = self.parsl.bash_app(
            lambda stdout=None: "echo hello", data_flow_kernel=self.kernel
        )
        self.assertEqual(echo(stdout=out).result(WAIT), 0)
        with open(out) as file:
            self.assertEqual(file.read(), "hello\n")

    def test_resources(self):
        def given(x, parsl_resource_specification=None):
            return x

        app = self.app(given)
        asked = {"cores": 2, "memory": 10, "retries": 1, "gpus": 0.5}
        self.assertEqual(app(5, parsl_resource_specification=asked).result(WAIT), 5)
        spec = self.client._job.all[-1][1][0]
        found = (spec["cpus"], spec["memory_bytes"], spec["retries"])
        self.assertEqual(found, (2, 10_000_000, 1))
        self.assertEqual(spec["resources"], "gpus=0.5")
        from parsl.executors.errors import InvalidResourceSpecification

        for wrong in ({"fish": 1}, {"cores": 0}):
            with self.assertRaises(InvalidResourceSpecification):
                app(5, parsl_resource_specification=wrong).result(WAIT)


class ParslInWorkers(Parsl):
    core = worker_core.Core


@unless("snakemake_interface_executor_plugins")
class Snakemake(unittest.TestCase):
    core = fake_core.Core
    # Without `warm`, which forks this process. Each with its calls of Snakemake.
    gears = (("strict", 2), ("direct", 0))

    def setUp(self):
        from snakemake_executor_plugin_starling import _calls

        self.calls = _calls
        self.client = client(self)
        folder = tempfile.TemporaryDirectory(prefix="starling-snakemake-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_commands(self):
        command = ("bash", 'set -euo pipefail; echo "$WORD" > out')
        self.client.submit(self.calls.shell, command, self.folder, {"WORD": "hi"}).result(WAIT)
        with open(os.path.join(self.folder, "out")) as file:
            self.assertEqual(file.read(), "hi\n")
        failed = self.client.submit(self.calls.shell, ("bash", "false; exit 3"), self.folder, {})
        with self.assertRaisesRegex(RuntimeError, "exit code 3"):
            failed.result(WAIT)

    def begin(self, worker, function, *arguments):
        """A call in a worker: (number of the call, the process that its command has named)."""
        from starling import _pickling

        _pickling.ship_modules()
        pids = os.path.join(self.folder, "pids")
        call = worker.begin(worker.learn(function), node.python_args(*arguments))
        worker.until_running(call)
        while not os.path.exists(pids):
            time.sleep(0.01)
        with open(pids) as file:
            pid = int(file.read())
        os.remove(pids)
        return call, pid

    def begin_command(self, worker, text):
        text += " echo $pid > pids.part; mv pids.part pids; wait"
        return self.begin(worker, self.calls.shell, ("bash", text), self.folder, {})

    def until_ended(self, pid):
        end = time.monotonic() + WAIT
        while alive(pid):
            self.assertLess(time.monotonic(), end, "a process of the command outlives it")
            time.sleep(0.01)

    def test_an_interrupt_ends_all_processes_of_a_command(self):
        worker = node.Worker()
        self.addCleanup(worker.close)
        for trap in ("", "trap '' TERM;"):
            call, pid = self.begin_command(worker, trap + "sleep 600 & pid=$!;")
            start = time.monotonic()
            worker.interrupt(call)
            self.assertEqual(worker.result().status, 3)
            self.until_ended(pid)
            # It waits less than the grace of the node, which then kills the worker.
            self.assertEqual(self.calls.TERM_SECONDS <= time.monotonic() - start, bool(trap))

    def test_a_command_dies_with_its_worker(self):
        worker = node.Worker()
        self.addCleanup(worker.close)
        _, pid = self.begin_command(worker, "trap '' TERM; pid=$$; sleep 0.2 &")
        os.kill(worker.process.pid, signal.SIGKILL)
        self.until_ended(pid)

    def test_gears(self):
        reason = missing("snakemake.api")
        if reason is not None:
            self.skipTest(reason)
        import snakemake_executor_plugin_starling as plugin

        self.assertEqual(plugin.ExecutorSettings().gear, "strict")
        quiet(self)
        for gear, commands in self.gears:
            with self.subTest(gear):
                core = self.run_workflow(plugin, gear)
                payloads = [payload for _, payload in core.jobs[0].payloads]
                found = sum(b"--target-jobs" in payload for payload in payloads)
                self.assertEqual(found, commands)

    def run_workflow(self, plugin, gear):
        from pathlib import Path

        from snakemake import api
        from snakemake.settings import types

        folder = Path(self.folder, gear)
        folder.mkdir()
        Path(folder, "Snakefile").write_text(
            "rule all:\n    input: 'last'\n"
            "rule first:\n    output: 'first'\n    resources: shell_exec='sh', tmpdir='made/here'\n"
            "    shell: 'test -d $TMPDIR && test made/here = $TEMP && echo one > {output}'\n"
            "rule last:\n    input: 'first'\n    output: 'last'\n"
            "    shell: 'cat {input} > {output}'\n"
        )
        core = self.core()
        before, here = plugin.Executor.make_client, os.getcwd()

        def make_client(*_):
            # Snakemake asks for the ends of jobs before.
            time.sleep(0.3)
            return starling.Client(name="test", _core=core)

        plugin.Executor.make_client = make_client
        try:
            with api.SnakemakeApi(types.OutputSettings(quiet={types.Quietness.ALL})) as snakemake:
                workflow = snakemake.workflow(
                    resource_settings=types.ResourceSettings(cores=1, nodes=2),
                    workdir=folder,
                    snakefile=folder / "Snakefile",
                )
                workflow.dag().execute_workflow(
                    executor="starling",
                    executor_settings=plugin.ExecutorSettings(gear=gear),
                    remote_execution_settings=types.RemoteExecutionSettings(
                        seconds_between_status_checks=5
                    ),
                )
        finally:
            plugin.Executor.make_client = before
            os.chdir(here)
        self.assertEqual(Path(folder, "last").read_text(), "one\n")
        self.assertEqual([name for _, name in core.tasks(1)], ["first", "last"])
        return core


def quiet(case):
    """Commands of the core in this process would print to the terminal."""
    for fd in (1, 2):
        before, nowhere = os.dup(fd), os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, fd)
        os.close(nowhere)
        case.addCleanup(os.close, before)
        case.addCleanup(os.dup2, before, fd)


class SnakemakeInWorkers(Snakemake):
    core = worker_core.Core
    gears = (("strict", 2), ("warm", 2), ("direct", 0))

    def begin_warm(self, worker):
        """Snakemake in a fork, with a command that ignores SIGTERM: (call, process)."""
        with open(os.path.join(self.folder, "Snakefile"), "w") as file:
            text = "trap '' TERM; echo $$ > pids.part; mv pids.part pids; sleep 600"
            file.write('rule all:\n    output: "out"\n    shell: "%s"\n' % text)
        argv = ["--cores", "1", "--quiet", "all", "--nolock"]
        return self.begin(worker, self.calls.warm, argv, self.folder, {})

    def test_an_end_of_a_call_or_its_worker_ends_a_forked_snakemake(self):
        reason = missing("snakemake.api")
        if reason is not None:
            self.skipTest(reason)
        worker = node.Worker()
        self.addCleanup(worker.close)
        call, pid = self.begin_warm(worker)
        worker.interrupt(call)
        self.assertEqual(worker.result().status, 3)
        self.until_ended(pid)
        _, pid = self.begin_warm(worker)
        os.kill(worker.process.pid, signal.SIGKILL)
        self.until_ended(pid)


def alive(pid):
    try:
        with open("/proc/%d/stat" % pid) as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


if __name__ == "__main__":
    unittest.main()

"""Snakemake's jobs as calls of Starling: `snakemake --executor starling --jobs 100`.

docs/python-adapters.md has the gears and what does not map.
"""

import asyncio
import os
import shlex
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from snakemake_interface_executor_plugins.settings import (
    CommonSettings,
    ExecutorSettingsBase,
    SharedFSUsage,
)

from starling import LocalCluster
from starling._client import Client, default_dir
from starling._errors import ClusterError

from . import _calls

# Of libraries for linear algebra, as Snakemake sets them for a command.
THREAD_VARIABLES = tuple(
    name + "_NUM_THREADS" for name in ("OMP", "GOTO", "OPENBLAS", "MKL", "NUMEXPR")
) + ("VECLIB_MAXIMUM_THREADS",)
GEARS = ("strict", "warm", "direct")

common_settings = CommonSettings(
    non_local_exec=True,
    implies_no_shared_fs=False,
    job_deploy_sources=False,
    # They travel with the call.
    pass_envvar_declarations_to_cmd=False,
    pass_group_args=True,
    init_seconds_before_status_checks=0,
    # The nodes have Snakemake with its plugins.
    auto_deploy_default_storage_provider=False,
)


@dataclass
class ExecutorSettings(ExecutorSettingsBase):
    dir: Optional[str] = field(
        default=None,
        metadata={"help": "Directory of the instance; default: as the starling program has it."},
    )
    gear: str = field(
        default="strict",
        metadata={
            "help": "strict: Snakemake is started for each job. warm: it is forked from a loaded "
            "one. direct: rules with a plain shell command run without it, others strictly.",
            "choices": GEARS,
        },
    )
    memory: bool = field(
        default=False,
        metadata={
            "help": "Ask the nodes for the resource mem_mb of each job, and limit it. Without this "
            "option mem_mb is ignored."
        },
    )


class Executor(RemoteExecutor):
    def __init__(self, workflow, logger):
        # The base class starts the thread that waits for it before `__post_init__`.
        self.ended = threading.Event()
        super().__init__(workflow, logger)

    def __post_init__(self):
        settings = self.workflow.executor_settings or ExecutorSettings()
        if settings.gear not in GEARS:
            raise WorkflowError("no gear %r; there are %s" % (settings.gear, ", ".join(GEARS)))
        self.gear, self.asks_memory = settings.gear, settings.memory
        self.copies = self.place_of_copies()
        self.client = self.make_client(settings.dir)
        self.most_cpus = max((node["slots"] for node in self.client._core.nodes()), default=1)

    def place_of_copies(self):
        """Where the nodes make directories for copies of stored files; None if jobs make no copies.

        Snakemake removes the copies of a job at its end, so each job needs a directory of its own.
        """
        settings = self.workflow.storage_settings
        if SharedFSUsage.STORAGE_LOCAL_COPIES in settings.shared_fs_usage:
            return None
        given, here = settings.remote_job_local_storage_prefix, settings.local_storage_prefix
        settings.remote_job_local_storage_prefix = Path("$" + _calls.COPIES_VARIABLE)
        return "" if given in (None, here) else str(given)

    def make_client(self, dir):
        preload = ["snakemake.cli"] if self.gear == "warm" else []
        try:
            return Client(dir or default_dir(), name="snakemake", preload=preload)
        except ClusterError:
            if dir is not None:
                raise
            return LocalCluster(nodes=1).client(name="snakemake", preload=preload)

    def copies_of(self, job):
        """What a call needs for a job that stores files; None if it stores none."""
        if self.copies is not None:
            return self.copies
        parts = job.jobs if job.is_group() else [job]
        return _calls.SHARED if any(map(self.has_storage, parts)) else None

    def run_job(self, job):
        cwd = os.getcwd()
        command = self.direct_command(job) if self.gear == "direct" else None
        if command is not None:
            self.workflow.async_run(job.prepare())
            call = _calls.shell, command, cwd, self.direct_environment(job)
        elif self.gear == "warm":
            call = self.warm_call(job, cwd)
        else:
            call = self.strict_call(job, cwd)
        future = self.client.options(**self.options(job)).submit(*call)
        info = SubmittedJobInfo(job, external_jobid=future.task, aux={"future": future})
        self.report_job_submission(info)
        future.add_done_callback(lambda _: self.ended.set())

    def strict_call(self, job, cwd):
        command = "bash", self.format_job_exec(job)
        return _calls.shell, command, cwd, self.own_environment(), self.copies_of(job)

    def own_environment(self):
        """That of Snakemake on a node."""
        named = os.environ.get("STARLING_BINARY")
        # The storage plugin runs the program.
        return {**self.envvars(), **({"STARLING_BINARY": named} if named else {})}

    def warm_call(self, job, cwd):
        words = shlex.split(self.format_job_exec(job))
        at = words.index("-m") if "-m" in words else -1
        if "&&" in words or at < 0 or words[at + 1] != "snakemake":
            # A command before it, as --precommand has it.
            return self.strict_call(job, cwd)
        return _calls.warm, words[at + 2 :], cwd, self.own_environment(), self.copies_of(job)

    def direct_command(self, job):
        """(shell, command) of a job if its rule is a plain shell command; else None.

        As `snakemake.shell.shell` makes it.
        """
        if job.is_group() or not job.is_shell or job.is_norun or job.is_template_engine:
            return None
        cached = getattr(job.rule.cache, "output", job.rule.cache)
        special = (job.is_shadow, job.is_pipe, job.is_service, job.is_containerized,
                   job.benchmark, job.conda_env_spec, job.env_modules, cached,
                   job.is_wrapper, job.is_script, job.is_notebook)  # fmt: skip
        if any(special) or job.container_img_url or self.has_storage(job):
            return None
        from snakemake.shell import MAX_ARG_LEN, shell

        executable = job.resources.get("shell_exec") or shell.get_executable() or "bash"
        parts = shell._get_process_prefix(executable), job.shellcmd, shell._process_suffix
        text = " ".join(parts).strip()
        # Snakemake writes a longer one to a file. `<TBD>` is known only where the job runs.
        is_plain = len(text.encode()) < MAX_ARG_LEN and "<TBD>" not in text
        return (executable, text) if is_plain else None

    def direct_environment(self, job):
        found = {name: str(max(1, int(job.threads or 1))) for name in THREAD_VARIABLES}
        # The resources of the job have it only where it runs.
        resources = job.rule.expand_resources(job.wildcards_dict, job.input, job.attempt)
        folder = resources.get("tmpdir")
        if folder and folder != tempfile.gettempdir():
            found.update(dict.fromkeys(("TMPDIR", "TMP", "TEMPDIR", "TEMP"), folder))
        return {**self.envvars(), **found}

    def has_storage(self, job):
        """Files of a storage plugin are fetched and stored by Snakemake."""
        return any(file.is_storage for file in [*job.input, *job.output, *job.log])

    def options(self, job):
        name = "group" if job.is_group() else job.rule.name
        cpus = max(1, int(job.threads or 1))
        if cpus > self.most_cpus:
            text = "%s asks for %d threads, and the largest node has %d slots; use --max-threads"
            raise WorkflowError(text % (name, cpus, self.most_cpus))
        found = {"name": name, "cpus": cpus}
        minutes = job.resources.get("runtime")
        if isinstance(minutes, (int, float)) and minutes > 0:
            found["time_limit"] = minutes * 60
        megabytes = job.resources.get("mem_mb") if self.asks_memory else None
        if isinstance(megabytes, (int, float)) and megabytes > 0:
            found["memory"] = int(megabytes * 10**6)
        gpus = job.resources.get("gpu")
        if isinstance(gpus, (int, float)) and gpus > 0:
            found["gpus"] = gpus
        return found

    async def check_active_jobs(self, active_jobs):
        for info in active_jobs:
            future = info.aux["future"]
            if not future.done():
                yield info
            elif future.cancelled():
                self.report_job_error(info, msg="The call was cancelled. ")
            elif future.exception() is not None:
                self.report_job_error(info, msg="%s " % failure_text(future))
            else:
                self.report_job_success(info)

    async def sleep(self):
        """Until a job ends, or as long as Snakemake wants."""
        seconds = max(0.02, self.next_seconds_between_status_checks)
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while not self.ended.is_set() and self.wait and loop.time() < end:
            await asyncio.sleep(0.02)
        self.ended.clear()

    def cancel_jobs(self, active_jobs):
        self.client._cancel_all([info.aux["future"] for info in active_jobs])

    def shutdown(self):
        super().shutdown()
        self.client.close()


def failure_text(future):
    error = future.exception()
    text = "%s: %s." % (type(error).__name__, error)
    try:
        printed = future.stderr.strip()
    except Exception:
        # Its node may be gone; the error alone is shown.
        printed = ""
    return "%s\n%s\n" % (text, printed[-4000:]) if printed else text

"""Named objects of a cluster.

The bytes are the kept output of a job, on the disks of nodes. A key of the key-value store has the
number of the job, and what Snakemake asks of a file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import shutil
import socket
import subprocess
import tarfile
import tempfile
import threading
import time
from dataclasses import dataclass
from typing import IO, Any, Iterator, Optional

from snakemake_interface_common.exceptions import WorkflowError

from starling._binary import find_binary
from starling._client import default_dir
from starling._errors import ClusterError, NoBinary

# A key has at most 64 KiB; a path of Linux is as long as this.
NAME_BYTES_MAX = 4096
KEY = "snakemake/%s"
# The exit code of the program if no cluster answers.
NO_CLUSTER = 3
# The file in the job.
FILE = "object"
# Before all calls of the workflow, so that an object is stored while all slots are taken.
PRIORITY = 1_000_000
# A command that stores files names here the socket of its call, which then gives its slot back.
GATE_VARIABLE = "STARLING_STORE_GATE"
# The time of a directory that a rule has written.
_TIMESTAMP = ".snakemake_timestamp"


class StoreError(ClusterError, WorkflowError):
    """An object cannot be stored or read. Snakemake shows its text alone."""


@dataclass(frozen=True)
class Entry:
    """What a key has."""

    job: str
    # Bytes of the file, or of all files of the directory.
    size: int
    mtime: float
    mode: int
    checksum: Optional[str] = None
    is_directory: bool = False

    def text(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @staticmethod
    def of(text: str) -> Entry:
        fields = json.loads(text)
        known = {field.name for field in dataclasses.fields(Entry)}
        return Entry(**{name: value for name, value in fields.items() if name in known})


def directory_of(given: Optional[str]) -> str:
    """The directory of the instance. A node has its own, whatever the main process has."""
    own = os.environ.get("STARLING_DIR") if os.environ.get("STARLING_NODE") else None
    return own or given or default_dir()


class Objects:
    def __init__(self, directory: str, copies: Optional[int] = None) -> None:
        self.directory, self.copies = directory, copies
        self._lines: Optional[Lines] = None
        self._lock = threading.Lock()

    # The keys.

    def _ask(self, **operation: Any) -> dict[str, Any]:
        with self._lock:
            if self._lines is None or not self._lines.runs_here():
                self._lines = Lines(self._command("kv", "batch"))
            try:
                return self._lines.ask(operation)
            except StoreError as error:
                self._lines = None
                raise self._explained("the key-value store", str(error)) from None

    def _text(self, name: str) -> Optional[str]:
        answer = self._ask(op="lookup", key=KEY % name)
        return answer["value"] if answer["found"] else None

    def _swap(self, name: str, before: Optional[str], entry: Entry) -> bool:
        expected: dict[str, Any] = {"absent": True} if before is None else {"expect": before}
        answer = self._ask(op="cas", key=KEY % name, value=entry.text(), **expected)
        return bool(answer["swapped"])

    def find(self, name: str) -> Optional[Entry]:
        text = self._text(name)
        return None if text is None else Entry.of(text)

    def touch(self, name: str) -> None:
        while True:
            text = self._text(name)
            if text is None:
                raise StoreError("the cluster has no object starling://%s" % name)
            if self._swap(name, text, dataclasses.replace(Entry.of(text), mtime=time.time())):
                return

    def remove(self, name: str) -> None:
        text = self._text(name)
        if text is not None:
            self._ask(op="remove", key=KEY % name)
            self._forget(Entry.of(text).job)

    # The bytes.

    def store(self, name: str, path: pathlib.Path) -> None:
        """An object of the same name is replaced, and its space is freed."""
        with tempfile.TemporaryDirectory(prefix=".starling-", dir=path.parent) as folder:
            file = pathlib.Path(folder, FILE)
            entry = _described(path, file)
            entry = dataclasses.replace(entry, job=self._submit(name, file))
        while True:
            before = self._text(name)
            if self._swap(name, before, entry):
                break
        if before is not None:
            self._forget(Entry.of(before).job)

    def _submit(self, name: str, file: pathlib.Path) -> str:
        command = ["submit", "--json", "--wait", "--name", ("storage %s" % name)[:200]]
        command += ["--priority", str(PRIORITY), "--upload", os.path.abspath(file), "--out", FILE]
        if self.copies is not None:
            command += ["--replicas", "kept=%d" % self.copies]
        with _gate() as is_open:
            if is_open:
                # The slot of this node is free for a moment, and the file has not far to go.
                command += ["--submit", "n" + os.environ["STARLING_NODE"]]
            done = self._run(*command, "--", "true")
        try:
            job = str(json.loads(done.stdout)["job"])
        except (ValueError, KeyError):
            job = ""
        if done.returncode or not job:
            if job:
                self._forget(job)
            raise self._explained("starling://%s cannot be stored" % name, _said(done))
        return job

    def fetch(self, name: str, path: pathlib.Path) -> None:
        entry = self.find(name)
        if entry is None:
            raise StoreError("the cluster has no object starling://%s" % name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".starling-", dir=path.parent) as folder:
            got = pathlib.Path(folder, "got")
            done = self._run("-q", "job", "fetch", "--output", str(got), entry.job)
            file = got / FILE
            if done.returncode or not file.exists():
                self._missing(name, entry, done)
            if entry.is_directory:
                tree = pathlib.Path(folder, "tree")
                tree.mkdir()
                _unpack(file, tree)
                file = tree
            elif file.stat().st_size != entry.size:
                text = "starling://%s has %d bytes on the nodes, and was stored with %d"
                raise StoreError(text % (name, file.stat().st_size, entry.size))
            os.chmod(file, entry.mode)
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            os.replace(file, path)
            os.utime(path, (entry.mtime, entry.mtime))

    def _missing(self, name: str, entry: Entry, done: subprocess.CompletedProcess[str]) -> None:
        """Raises what is known of an object that was not read."""
        what = "starling://%s (kept by job %s) cannot be read" % (name, entry.job)
        info = self._run("--json", "job", "info", entry.job)
        if info.returncode == NO_CLUSTER:
            raise self._explained(what, _said(info))
        is_gone = info.returncode != 0
        # A later store may have replaced it meanwhile.
        if is_gone and self.find(name) == entry:
            self._ask(op="remove", key=KEY % name)
        remedy = "its name is removed, and the next run of Snakemake makes it" if is_gone else (
            "see 'starling job info %s'; 'starling kv remove %s' lets the next run of Snakemake "
            "make it" % (entry.job, KEY % name)
        )  # fmt: skip
        raise StoreError("%s: %s; %s" % (what, _said(done), remedy))

    def _forget(self, job: str) -> None:
        """Frees the space. A job that is forgotten already is no fault."""
        self._run("-q", "job", "forget", "--results", job)

    # The program.

    def _command(self, *arguments: str) -> list[str]:
        try:
            return [find_binary(), "--dir", self.directory, *arguments]
        except NoBinary as error:
            raise StoreError(str(error)) from None

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._command(*arguments), stdin=subprocess.DEVNULL, capture_output=True, text=True
        )

    def _explained(self, what: str, said: str) -> StoreError:
        if os.path.exists(os.path.join(self.directory, "cluster.json")):
            return StoreError("%s (cluster %s): %s" % (what, self.directory, said))
        if not said.startswith("no cluster"):
            said = "no cluster at %s: %s" % (self.directory, said)
        text = "%s; start one with 'starling up', or name its directory in %s"
        return StoreError(text % (said, "STARLING_DIR or --storage-starling-dir"))


def _said(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line for line in done.stderr.strip().splitlines() if not line.startswith("hint:")]
    said = "; ".join(line.removeprefix("error: ") for line in lines[-3:])
    return said or "exit code %d" % done.returncode


class Lines:
    """`starling kv batch`, which answers each line with a line."""

    def __init__(self, command: list[str]) -> None:
        self._pid = os.getpid()
        self._said: IO[bytes] = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said
        )

    def runs_here(self) -> bool:
        """A fork asks through a process of its own."""
        return self._pid == os.getpid() and self._process.poll() is None

    def ask(self, operation: dict[str, Any]) -> dict[str, Any]:
        to, back = self._process.stdin, self._process.stdout
        assert to is not None and back is not None
        try:
            to.write(json.dumps(operation).encode() + b"\n")
            to.flush()
            line = back.readline()
        except BrokenPipeError:
            line = b""
        if not line:
            code = self._process.wait()
            self._said.seek(0)
            text = self._said.read().decode("utf-8", "replace")
            done = subprocess.CompletedProcess([], code, "", text)
            raise StoreError(_said(done))
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __del__(self) -> None:
        process = getattr(self, "_process", None)
        if process is None or self._pid != os.getpid():
            return
        process.stdin.close()
        process.stdout.close()
        process.wait()
        self._said.close()


@contextlib.contextmanager
def _gate() -> Iterator[bool]:
    """While it is open, the call of this command gives its slot back, if it is one."""
    name = os.environ.get(GATE_VARIABLE)
    if not name or not os.environ.get("STARLING_NODE"):
        yield False
        return
    with socket.socket(socket.AF_UNIX) as line:
        line.connect("\0" + name)
        yield True


def _described(path: pathlib.Path, file: pathlib.Path) -> Entry:
    """What is known of a file or a directory. `file` becomes what is uploaded."""
    real = os.path.realpath(path)
    found = os.stat(real)
    if os.path.isdir(real):
        with tarfile.open(file, "w") as archive:
            archive.add(real, ".")
            size = sum(member.size for member in archive.getmembers())
        timestamp = os.path.join(real, _TIMESTAMP)
        mtime = os.stat(timestamp if os.path.exists(timestamp) else real).st_mtime
        return Entry("", size, mtime, found.st_mode & 0o7777, is_directory=True)
    os.symlink(real, file)
    with open(real, "rb") as data:
        checksum = "sha256:" + hashlib.file_digest(data, "sha256").hexdigest()
    return Entry("", found.st_size, found.st_mtime, found.st_mode & 0o7777, checksum)


def _unpack(file: pathlib.Path, folder: pathlib.Path) -> None:
    with tarfile.open(file, "r") as archive:
        # Early versions of Python 3.11 have no filters.
        if hasattr(tarfile, "tar_filter"):
            archive.extraction_filter = staticmethod(tarfile.tar_filter)
        archive.extractall(folder)

"""Environments: a directory that is packed once, put once, and unpacked once on each node."""

import gzip
import hashlib
import json
import os
import pathlib
import re
import stat
import subprocess
import tarfile
import tempfile
import threading
import warnings

from ._binary import find_binary
from ._errors import ClusterError

# Bytes that are read at a time.
_CHUNK = 1 << 20
# Environments that stay on a node beside those in use.
KEPT_MAX = 8
# Caches of Python, which change without a change of the modules.
_NOT_CONTENT = "__pycache__"
_KEY = "environment/%s"
_PATH_LINE = re.compile(r"(/[^\n\x00]*)")

# Runs on a node before the start of Python: $0 is the program, the arguments follow.
# The node's program is the parent of this one. The lock at descriptor 15 stays with the runtime.
_UNPACK = r"""
set -e
name=@DIGEST@
root="${STARLING_WORKER_OBJECTS%/*}/environments"
place="$root/$name"
fail() {
    echo "the environment $name on node n$STARLING_NODE: $1" >&2
    exit 1
}
for tool in flock tar gzip; do
    command -v $tool >/dev/null || fail "the program $tool is missing; install it there"
done
mkdir -p "$root" || fail "$root cannot be made"
exec 14>>"$root/lock"
flock 14
if [ ! -e "$place/.starling-ready" ]; then
    starling=/proc/$PPID/exe
    rm -rf "$place" "$root/new"
    job=$("$starling" kv lookup "environment/$name" 2>/dev/null) ||
        fail "the cluster has it no more; a new starling.Environment puts it again"
    said=$("$starling" -q job fetch --output "$root/new/got" "$job" 2>&1 >/dev/null) ||
        fail "job $job does not give it ($(echo $said)); see 'starling job info $job'"
    mkdir -p "$root/new/tree"
    said=$(tar -xzf "$root/new/got/$name" -C "$root/new/tree" 2>&1) ||
        fail "it cannot be unpacked: $(echo $said | tail -c 200)"
    mv "$root/new/tree" "$place"
    rm -rf "$root/new"
    if [ -x "$place/bin/conda-unpack" ]; then
        "$place/bin/python" "$place/bin/conda-unpack" >/dev/null || fail "conda-unpack has failed"
    fi
    touch "$place/.starling-ready"
    ls -t "$root" | tail -n +@KEPT@ | while read -r old; do
        [ "$old" = "$name" ] || [ ! -e "$root/$old/.starling-ready" ] ||
            flock -n "$root/$old/.starling-ready" rm -rf "$root/$old" || true
    done
fi
touch "$place"
exec 15<"$place/.starling-ready"
flock -s 15
exec 14>&-
"""

# The environment has a Python. That of a venv is a link to one outside.
_OWN_PYTHON = r"""
export PATH="$place/bin:$PATH" VIRTUAL_ENV="$place"
if [ ! -x "$place/bin/python" ]; then
    base=$(readlink -f "$place/bin/python" || readlink "$place/bin/python")
    python=$(PATH="${PATH#*:}" command -v python@VERSION@) ||
        fail "it needs Python @VERSION@ as $base; install it there, or pack an environment of conda"
    ln -sf "$python" "$place/bin/python"
    [ ! -e "$place/pyvenv.cfg" ] || sed -i "s|^home *=.*|home = ${python%/*}|" "$place/pyvenv.cfg"
fi
"""

_MODULES = r"""
export PYTHONPATH="$place${PYTHONPATH:+:$PYTHONPATH}"
"""


class Environment:
    """A venv, an environment of conda, a directory of modules, or an archive of one of them.

    It is packed at its first use, put to the nodes once for the same content, and unpacked once on
    each node that runs calls with it. `conda-pack` and `python -m starling.env pack` make archives.
    """

    def __init__(self, path):
        self.path = pathlib.Path(os.path.expanduser(os.fspath(path))).absolute()
        if self.path.is_dir():
            self._has_python = os.path.lexists(self.path / "bin" / "python")
        elif self.path.is_file():
            self._has_python = _archive_has_python(self.path)
        else:
            raise FileNotFoundError("no environment is at %s" % self.path)
        self._digest = None
        self._version = _version(self.path) if self._has_python else ""
        self._lock = threading.Lock()
        # The directories of clusters that have it.
        self._put_to = set()

    @property
    def digest(self):
        """The name of its content."""
        with self._lock:
            if self._digest is None:
                self._digest = tree_digest(self.path) if self.path.is_dir() else _file_digest(self.path)
            return self._digest

    def pack(self, output):
        """Writes the archive of a directory and returns its size."""
        if not self.path.is_dir():
            raise ValueError("%s is packed already" % self.path)
        outside = editable(self.path)
        if outside:
            text = "modules outside of %s are not packed: %s; install them without --editable"
            warnings.warn(text % (self.path, ", ".join(outside)), stacklevel=2)
        pack(self.path, output)
        return os.stat(output).st_size

    def _script(self, prologue):
        """The lines of bash before the start of Python."""
        text = _UNPACK + (_OWN_PYTHON if self._has_python else _MODULES)
        text = text.replace("@DIGEST@", self.digest).replace("@VERSION@", self._version)
        return text.replace("@KEPT@", str(KEPT_MAX + 1)) + "set +e\n" + prologue

    def _argv(self, python, prologue):
        last = '\nexec "$place/bin/python" "$@"' if self._has_python else '\nexec "$0" "$@"'
        return ["bash", "-c", self._script(prologue) + last, python, "{worker}"]

    def _put(self, directory):
        """Gives it to a cluster, unless that has it."""
        with self._lock:
            is_there = directory in self._put_to
        if is_there:
            return
        key, name = _KEY % self.digest, self.digest
        starling = _Program(directory)
        before = starling.run("kv", "lookup", key, is_asked=True)
        if before is None or starling.run("job", "info", before, is_asked=True) is None:
            with tempfile.TemporaryDirectory(prefix="starling-environment-") as folder:
                file = os.path.join(folder, "archive")
                if self.path.is_dir():
                    self.pack(file)
                else:
                    os.symlink(self.path, file)
                command = ["submit", "--json", "--wait", "--name", "environment %s" % self.path.name]
                command += ["--upload", file, "--out", name, "--", "cp", "archive", name]
                job = json.loads(starling.run(*command))["job"]
            starling.run("kv", "insert", key, job)
        with self._lock:
            self._put_to.add(directory)

    def __reduce__(self):
        # In a call the path may not exist.
        return _known, (str(self.path), self.digest, self._has_python, self._version)

    def __repr__(self):
        return "Environment(%r)" % str(self.path)


def _known(path, digest, has_python, version):
    found = Environment.__new__(Environment)
    found.path, found._digest = pathlib.Path(path), digest
    found._has_python, found._version = has_python, version
    found._lock, found._put_to = threading.Lock(), set()
    return found


class _Program:
    """The program `starling` with the directory of a cluster."""

    def __init__(self, directory):
        self.start = [find_binary(), "--dir", os.fspath(directory)]

    def run(self, *arguments, is_asked=False):
        """What it prints. None if it says no to a question."""
        done = subprocess.run(
            [*self.start, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        if done.returncode == 0:
            return done.stdout.strip()
        if is_asked and done.returncode == 1:
            return None
        said = "; ".join(done.stderr.strip().splitlines()[-3:])
        text = "the environment could not be given to the cluster: starling %s: %s"
        raise ClusterError(text % (arguments[0], said or "exit code %d" % done.returncode))


# Packing.


def entries(root):
    """The paths below a directory, in order, and whether they are content."""
    for folder, folders, files in os.walk(root):
        folders.sort()
        here = pathlib.Path(folder)
        links = [name for name in folders if (here / name).is_symlink()]
        for name in sorted(files + folders):
            path = here / name
            is_cache = _NOT_CONTENT in path.relative_to(root).parts
            if name in links or name in folders or _is_packed(path):
                yield path, not is_cache


def _is_packed(path):
    mode = os.lstat(path).st_mode
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode)


def tree_digest(root):
    """The name of a directory's content: names, links, modes and bytes; without times."""
    found = hashlib.sha256()
    for path, is_content in entries(root):
        if not is_content:
            continue
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode):
            kind, inner = b"l", os.fsencode(os.readlink(path))
        elif stat.S_ISDIR(mode):
            kind, inner = b"d", b""
        else:
            kind, inner = b"x" if mode & 0o100 else b"f", bytes.fromhex(_file_digest(path, 64))
        name = os.fsencode(path.relative_to(root))
        for part in (kind, name, inner):
            found.update(len(part).to_bytes(8, "little") + part)
    return found.hexdigest()[:32]


def _file_digest(path, length=32):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:length]


def pack(root, output):
    """Writes a compressed archive of a directory. Its owners are those of the unpacking node."""

    def plain(entry):
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return entry

    with gzip.GzipFile(os.fspath(output), "wb", compresslevel=1, mtime=0) as compressed:
        with tarfile.open(fileobj=compressed, mode="w|", bufsize=_CHUNK) as archive:
            for path, _ in entries(root):
                name = str(path.relative_to(root))
                archive.add(path, name, recursive=False, filter=plain)


def _archive_has_python(path):
    try:
        with tarfile.open(path, "r:gz") as archive:
            return any(_plain_name(entry.name) == "bin/python" for entry in archive)
    except (tarfile.TarError, OSError, EOFError) as error:
        text = "%s is no directory and no archive of an environment (.tar.gz): %s"
        raise ValueError(text % (path, error)) from error


def _plain_name(name):
    return name[2:] if name.startswith("./") else name


def _version(path):
    """The version of Python in an environment, such as 3.11."""
    if path.is_dir():
        names = [str(found.relative_to(path)) for found in path.glob("lib/python3.*")]
    else:
        with tarfile.open(path, "r:gz") as archive:
            names = [_plain_name(entry.name) for entry in archive]
    found = (re.match(r"lib/python(3\.\d+)(/|$)", name) for name in names)
    return next((match[1] for match in found if match), "3")


def editable(root):
    """What an environment has by its path alone, outside of it."""
    found = []
    for folder in pathlib.Path(root).glob("lib/python3.*/site-packages"):
        for file in sorted(folder.glob("*.pth")):
            lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
            paths = [line.strip() for line in lines if _PATH_LINE.fullmatch(line.strip())]
            found += [path for path in paths if not path.startswith(str(root) + os.sep)]
        for file in sorted(folder.glob("*.dist-info/direct_url.json")):
            fields = json.loads(file.read_text(encoding="utf-8", errors="replace"))
            if fields.get("dir_info", {}).get("editable"):
                found.append(fields.get("url", "").removeprefix("file://"))
    return sorted(set(found))

"""Environments: a directory that is packed once, put once, and unpacked once on each node."""

import gzip
import hashlib
import json
import os
import pathlib
import re
import shutil
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
# Seconds for the fetch of an archive on a node, and for its unpacking. A node kills a worker that
# is not ready after 300 s.
START_SECONDS_MAX = 290
# Bytes of an archive: a node has to fetch and to unpack it within its limit.
PACKED_BYTES_MAX = 8 << 30
# Environments that stay on a node beside those in use.
KEPT_MAX = 8
# Caches of Python, which change without a change of the modules.
_NOT_CONTENT = "__pycache__"
_KEY = "environment/%s"
_PATH_LINE = re.compile(r"(/[^\n\x00]*)")

# Runs on a node before the start of Python: $0 is the program, the arguments follow.
# The node's program is the parent of this one. The lock at descriptor 15 stays with the runtime.
# A fetched archive stays until it is unpacked, so a start that was too late helps the next one.
# The few files of locks are for all names: the first two digits choose one.
_UNPACK = r"""
set -e
name=@DIGEST@
root="${STARLING_WORKER_OBJECTS%/*}/environments"
place="$root/$name"
work="$root/.new-$name"
fail() {
    echo "the environment $name on node n$STARLING_NODE: $1" >&2
    exit 1
}
end_of() { echo $1 | tail -c 200; }
limited() {
    left=$((@LIMIT@ - SECONDS))
    timeout --foreground $((left > 1 ? left : 1)) "$@"
}
lock_of() { echo "$root/.locks/${1%"${1#??}"}"; }
for tool in flock tar gzip timeout; do
    command -v $tool >/dev/null || fail "the program $tool is missing; install it there"
done
mkdir -p "$root/.locks" || fail "$root cannot be made"
exec 14>>"$(lock_of $name)"
flock -w @LIMIT@ 14 || fail "another start has not unpacked it in @LIMIT@ s, which is the limit"
if [ ! -e "$place/.starling-ready" ]; then
    starling=/proc/$PPID/exe
    rm -rf "$place" "$work/tree"
    if [ ! -e "$work/fetched" ]; then
        rm -rf "$work"
        mkdir "$work"
        code=0
        job=$(limited "$starling" kv lookup "environment/$name" 2>"$work/said") || code=$?
        [ $code -ne 1 ] ||
            fail "the cluster has it no more; a new starling.Environment puts it again"
        [ $code -eq 0 ] ||
            fail "its key cannot be read, exit code $code: $(end_of "$(cat "$work/said")")"
        said=$(limited "$starling" -q job fetch --output "$work/got" "$job" 2>&1 >/dev/null) || {
            [ $? -ne 124 ] || fail "it was not fetched in @LIMIT@ s, which is the limit"
            fail "job $job does not give it ($(echo $said)); see 'starling job info $job'"
        }
        mv "$work/got/$name" "$work/archive"
        touch "$work/fetched"
    fi
    mkdir "$work/tree"
    said=$(limited tar -xzf "$work/archive" -C "$work/tree" 2>&1) || {
        [ $? -ne 124 ] || fail "it was not unpacked in @LIMIT@ s, which is the limit"
        rm -rf "$work"
        fail "it cannot be unpacked: $(end_of "$said")"
    }
    mv "$work/tree" "$place"
    if [ -x "$place/bin/conda-unpack" ]; then
        "$place/bin/python" "$place/bin/conda-unpack" >/dev/null || fail "conda-unpack has failed"
    fi
    touch "$place/.starling-ready"
    rm -rf "$work"
    ls -t "$root" | tail -n +@KEPT@ | while read -r old; do
        [ "$old" = "$name" ] || [ ! -e "$root/$old/.starling-ready" ] ||
            flock -n "$(lock_of $old)" flock -n "$root/$old/.starling-ready" rm -rf "$root/$old" ||
            true
    done
    for old in "$root"/.new-*; do
        [ ! -e "$old" ] || flock -n "$(lock_of "${old##*/.new-}")" rm -rf "$old" || true
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
fits() {
    said=$("$1" -I -S -c 'import sys; print("%d.%d." % sys.version_info[:2])' 2>/dev/null) ||
        return 1
    case "$said" in "@VERSION@".*) ;; *) return 1 ;; esac
}
if ! fits "$place/bin/python"; then
    base="$place/bin/python"
    base=$(readlink -f "$base" || readlink "$base" || echo "$base")
    python=$(PATH="${PATH#*:}" command -v python@VERSION@) && fits "$python" ||
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
        text = text.replace("@LIMIT@", str(START_SECONDS_MAX))
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
                self._archive(file)
                command = ["submit", "--json", "--wait", "--name", "environment %s" % self.path.name]
                command += ["--upload", file, "--out", name, "--", "cp", "archive", name]
                job = json.loads(starling.run(*command))["job"]
            starling.run("kv", "insert", key, job)
        with self._lock:
            self._put_to.add(directory)

    def _archive(self, file):
        """Writes what is uploaded, and refuses a content that has another name by now."""
        if self.path.is_dir():
            self.pack(file)
            found = tree_digest(self.path)
        else:
            _check_size(self.path, os.stat(self.path).st_size)
            shutil.copyfile(self.path, file)
            found = _file_digest(file)
        if found != self.digest:
            text = "%s has changed since its name was found; make its Environment or Runtime again"
            raise ValueError(text % self.path)

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

    with open(output, "wb") as file:
        with gzip.GzipFile("", "wb", fileobj=file, compresslevel=1, mtime=0) as compressed:
            with tarfile.open(fileobj=compressed, mode="w|", bufsize=_CHUNK) as archive:
                for path, _ in entries(root):
                    name = str(path.relative_to(root))
                    archive.add(path, name, recursive=False, filter=plain)
                    _check_size(root, file.tell())
        _check_size(root, file.tell())


def _check_size(path, size):
    if size > PACKED_BYTES_MAX:
        text = "the environment %s is too large: its archive has more than %d bytes"
        raise ValueError(text % (path, PACKED_BYTES_MAX))


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

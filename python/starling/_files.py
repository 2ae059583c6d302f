"""Files as values, and what runs commands in workers."""

import os
import pickle


class File:
    """The bytes of a file with its name. `os.fspath` of it is the path of a copy of its own."""

    def __init__(self, name, data):
        self.name, self._data, self._copy = name, data, None

    def __len__(self):
        return memoryview(self._data).nbytes

    def read(self):
        return bytes(self._data)

    def text(self, encoding="utf-8"):
        return self.read().decode(encoding)

    def write(self, path):
        with open(path, "wb") as file:
            file.write(self._data)

    @property
    def path(self):
        """A copy, as long as this object is in use."""
        if self._copy is None:
            import tempfile

            self._copy = tempfile.TemporaryDirectory(prefix="starling-file-")
            self.write(os.path.join(self._copy.name, self.name))
        return os.path.join(self._copy.name, self.name)

    def __fspath__(self):
        return self.path

    def __reduce_ex__(self, protocol):
        if protocol < 5:
            return File, (self.name, self.read())
        return File, (self.name, pickle.PickleBuffer(self._data))

    def __repr__(self):
        return "<File %r of %d bytes>" % (self.name, len(self))


class Out:
    """The place of a file that a command writes."""

    def __init__(self, name):
        self.name = plain(name)

    def __repr__(self):
        return "out(%r)" % self.name


class Done:
    """A command that has ended: its exit code, and its files by name."""

    def __init__(self, code, files):
        self.code, self.files = code, files

    def __getitem__(self, name):
        return self.files[name]

    def __repr__(self):
        return "<Done with exit code %d, files %s>" % (self.code, ", ".join(self.files) or "none")


def plain(name):
    """The name of a file without folders."""
    name = os.fspath(name)
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise ValueError("%r is no name of a file" % (name,))
    return name


def run(parts, cwd, env, stdin, check):
    """In a worker: runs a command in a directory of its own."""
    import shutil
    import subprocess
    import tempfile

    place = tempfile.mkdtemp(prefix="starling-command-")
    try:
        for name in ("in", "out", "work"):
            os.mkdir(os.path.join(place, name))
        words = Words(place)
        argv = [words.word(part) for part in parts]
        given = subprocess.DEVNULL if stdin is None else open(words.word(stdin), "rb")
        child = subprocess.Popen(
            argv,
            cwd=cwd or os.path.join(place, "work"),
            env={**os.environ, **env},
            stdin=given,
            start_new_session=True,
            preexec_fn=dies_with(os.getpid()),
        )
        code = waited(child)
        if code and check:
            raise subprocess.CalledProcessError(code, argv)
        return Done(code, {name: read(place, name, check) for name in words.outs})
    finally:
        shutil.rmtree(place, ignore_errors=True)


class Words:
    """The arguments of a command from their parts."""

    def __init__(self, place):
        self.place, self.inputs, self.outs = place, 0, []

    def word(self, part):
        if isinstance(part, tuple):
            return "".join(map(self.word, part))
        if isinstance(part, Out):
            if part.name not in self.outs:
                self.outs.append(part.name)
            return os.path.join(self.place, "out", part.name)
        if isinstance(part, File):
            self.inputs += 1
            folder = os.path.join(self.place, "in", str(self.inputs))
            os.mkdir(folder)
            path = os.path.join(folder, part.name)
            part.write(path)
            return path
        return part if isinstance(part, (str, bytes)) else str(part)


def read(place, name, check):
    import mmap

    try:
        with open(os.path.join(place, "out", name), "rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                return File(name, b"")
            # It stays readable after its removal.
            return File(name, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
    except FileNotFoundError:
        if not check:
            return None
        raise FileNotFoundError("the command has not written %s" % name) from None


def waited(child):
    """The exit code. An interrupt ends the session of the command."""
    import signal

    try:
        return child.wait()
    except BaseException:
        # A worker is killed two seconds after its interrupt.
        for number, seconds in ((signal.SIGTERM, 1.0), (signal.SIGKILL, None)):
            try:
                os.killpg(child.pid, number)
            except ProcessLookupError:
                break
            try:
                child.wait(seconds)
            except Exception:
                continue
        raise


def dies_with(parent):
    """What a child calls so that the kernel kills it when the worker ends."""
    import ctypes
    import signal

    prctl, parent_death_signal = ctypes.CDLL(None).prctl, 1

    def die():
        prctl(parent_death_signal, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return die


def part_of(value, key):
    return value[key]

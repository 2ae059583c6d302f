"""Commands as calls."""

import os
import pathlib

from . import _files
from ._future import Future
from ._options import Options


class Command(Future):
    """The future of a command. `command["name"]` is the future of one of its files."""

    def __getitem__(self, name):
        options = Options(name=str(name))
        return self._client._submit(options, _files.part_of, (self, name), {})

    # Else Python would count through it.
    __iter__ = None


def submit(client, options, argv, cwd, env, stdin, check):
    if isinstance(argv, (str, bytes)):
        raise TypeError("a command is a list of its program and arguments, not %r" % (argv,))
    argv = list(argv)
    if not argv:
        raise ValueError("a command has at least its program")
    env = {str(name): str(value) for name, value in (env or {}).items()}
    cwd = None if cwd is None else os.fspath(cwd)
    if not options.name and isinstance(argv[0], str):
        options = options.changed({"name": os.path.basename(argv[0])})
    future = client._submit(options, _files.run, (argv, cwd, env, stdin, check), {})
    # It has nothing of its own but methods.
    future.__class__ = Command
    return future


def file(client, path):
    path = pathlib.Path(os.path.expanduser(os.fspath(path)))
    return client.put(_files.File(path.name, path.read_bytes()))


def out(name):
    """In the arguments of a command: the path of a file that it writes."""
    return _files.Out(name)

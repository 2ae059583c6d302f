"""The programs of workers."""

import os
import sys

from . import _pickling, _wrappers
from ._environment import Environment
from ._sizes import size_bytes
from ._worker import context, main


# The node shows the last line that a start has printed, so that has the exit code and the text.
_PROLOGUE = """starling_errors=$(mktemp) || exit
exec {starling_stderr}>&2 2>"$starling_errors"
trap 'starling_code=$?
      exec 2>&"$starling_stderr"
      cat "$starling_errors" >&2
      starling_text=$(tail -n 1 "$starling_errors")
      rm -f "$starling_errors"
      echo "the prologue failed with exit code $starling_code${starling_text:+: $starling_text}" >&2
      exit "$starling_code"' EXIT
set -e
%s
set +e
trap - EXIT
exec 2>&"$starling_stderr" {starling_stderr}>&-
cat "$starling_errors" >&2
rm -f "$starling_errors"
"""


class Runtime:
    """The Python of workers, and what they do before calls.

    `python`: its path; without it that of this program. `preload`: modules that a node loads once.
    `init`: a function that each worker calls before its first call. `prologue`: lines of bash
    before the start of Python, such as "module load x"; each must succeed. `env`: variables. `memory`: asked by each
    call that names no memory, and its limit. `environment`: an `Environment`, or the path of one:
    the workers use its Python or its modules. `cwd`: the directory of the workers, which each node
    must have; without it that of the program, on nodes that have it.
    """

    def __init__(
        self,
        python=None,
        *,
        preload=(),
        init=None,
        prologue="",
        env=None,
        memory=0,
        environment=None,
        cwd=None,
    ):
        if isinstance(preload, str) or not all(isinstance(name, str) for name in preload):
            raise TypeError("preload is a list of names of modules, not %r" % (preload,))
        if init is not None and not callable(init):
            raise TypeError("init is a function, not %r" % (init,))
        self.python = os.path.expanduser(os.fspath(python)) if python else sys.executable
        self.preload, self.init, self.prologue = tuple(preload), init, prologue
        self.env = tuple(sorted((str(name), str(value)) for name, value in (env or {}).items()))
        self.memory = size_bytes(memory)
        self.cwd = None if cwd is None else os.path.abspath(os.path.expanduser(os.fspath(cwd)))
        self._init_key = None
        if environment is not None and not isinstance(environment, Environment):
            environment = Environment(environment)
        if python and environment is not None and environment._has_python:
            raise TypeError("the environment has a Python; give `python` or `environment`")
        self.environment = environment

    def _fields(self, directory=None):
        """As the core takes them: arguments, modules, environment.

        `directory`: that of the workers if there is no `cwd`, on nodes that have it.
        """
        argv = [self.python, "{worker}"]
        prologue = _PROLOGUE % self.prologue if self.prologue else ""
        if self.environment is not None:
            argv = self.environment._argv(self.python, prologue)
        elif prologue:
            argv = ["bash", "-c", prologue + 'exec "$0" "$@"', *argv]
        env = list(self.env)
        if self.cwd is not None:
            env.append((main.CWD, self.cwd))
        elif directory is not None:
            env.append((main.CWD_IF_THERE, directory))
        return argv, list(self.preload), env

    def _wrapped(self, fn):
        """What the worker calls for `fn`."""
        if self.init is None and not self.memory:
            return fn
        if self._init_key is None and self.init is not None:
            data = _pickling.function_bytes(self.init)
            if data is None:
                raise TypeError("init refers to a future")
            self._init_key = _pickling.digest(data)
        return _wrappers.Initialised(fn, self.init, self._init_key, self.memory)

    def __repr__(self):
        shown = [repr(self.python)]
        names = [name for name in ("preload", "init", "environment") if getattr(self, name)]
        shown += ["%s=%r" % (name, getattr(self, name)) for name in names]
        return "Runtime(%s)" % ", ".join(shown)


class Inherited(Runtime):
    """The runtime of the call that runs here, for its own calls. Its node knows the program."""

    def __init__(self, running):
        super().__init__(init=running.init, memory=running.memory)
        self._init_key = running.key

    def _fields(self, directory=None):
        return None


def inherited(call):
    """That of a call, if it does more than to choose a program; else None."""
    running = context._state.get("runtimes", {}).get(call)
    return None if running is None else Inherited(running)

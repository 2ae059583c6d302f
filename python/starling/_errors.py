"""The exceptions of the client."""

import pickle


class StarlingError(Exception):
    """The base of all exceptions that this package defines."""


class ClusterError(StarlingError):
    """The cluster cannot be reached, or has refused a request."""


class NoBinary(StarlingError):
    """There is no `starling` program for a local cluster."""


class ClientClosed(StarlingError):
    """The client was closed before the result was read, or before the call was submitted."""


class CannotPickle(StarlingError, pickle.PicklingError, TypeError):
    """An argument or a function cannot be pickled. `path` names the part."""

    def __init__(self, text, path=None):
        super().__init__(text)
        self.path = path

    def __reduce__(self):
        return type(self), (self.args[0], self.path)


class TooLarge(StarlingError, ValueError):
    """Arguments or a value exceed a limit."""


class WouldDeadlock(StarlingError, RuntimeError):
    """Calls wait for calls, and no process of the node is left for these."""


class RemoteError(StarlingError):
    """A call failed, and its exception could not come back as an object.

    `type` is the name of the exception's class, `text` its message, `frames` its traceback.
    """

    def __init__(self, text, type="", frames=""):
        super().__init__(text)
        self.text, self.type, self.frames = text, type, frames

    def __reduce__(self):
        return self.__class__, (self.text, self.type, self.frames)


class CallFailed(RemoteError):
    """A call failed outside its function: the worker crashed, refused it, or a limit ended it."""


class CallRefused(CallFailed):
    """No worker could run a call: another Python, or a module or a program that is missing."""


class RemoteTraceback(Exception):
    """The cause of a call's exception: the traceback in the worker, as text."""

    def __init__(self, frames):
        super().__init__(frames)
        self.frames = frames

    def __str__(self):
        return '\n"""\n%s"""' % self.frames

    def __reduce__(self):
        return type(self), (self.frames,)


class DependencyError(StarlingError):
    """A call never ran, because an input failed. Its cause is the first failure."""


class ResultLost(StarlingError):
    """A result cannot be read any more."""

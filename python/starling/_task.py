"""Functions with options, by decorator."""

import functools

from ._client import default_client
from ._options import Options
from ._worker.context import same


class Task:
    """A function that also runs on the cluster: `f.submit(x)`, `f.map(xs)`. `f(x)` runs here."""

    def __init__(self, fn, options, client=None):
        functools.update_wrapper(self, fn)
        self._fn, self._options, self._client = fn, options, client

    def __call__(self, *args, **kwargs):
        return self._fn(*args, **kwargs)

    def submit(self, /, *args, **kwargs):
        return self._open()._submit(self._options, self._fn, args, kwargs)

    def map(self, /, *iterables, ahead=None):
        from ._map import Map

        return Map(self._open(), self._options, self._fn, iterables, ahead)

    def options(self, **options):
        return Task(self._fn, self._options.changed(options), self._client)

    def on(self, client):
        """The same task on this client."""
        return Task(self._fn, self._options, client)

    def _open(self):
        return self._client or default_client()

    def __get__(self, instance, owner=None):
        return self if instance is None else functools.partial(self, instance)

    def __reduce__(self):
        # In a call it is the plain function.
        return same, (self._fn,)

    def __repr__(self):
        return "<Task %s>" % self._fn.__qualname__


def task(fn=None, /, **options):
    """`@task` or `@task(cpus=2)`."""
    if fn is None:
        return lambda fn: Task(fn, Options().changed(options))
    return Task(fn, Options().changed(options))

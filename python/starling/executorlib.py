"""An executor in the shape of those of executorlib.

    with starling.executorlib.Executor() as exe:
        f = exe.submit(fit, x, resource_dict={"threads_per_core": 4})

Futures in arguments are edges. executorlib itself is not needed.
"""

import concurrent.futures
import inspect
import sys
import threading

from . import _pickling
from ._client import _executors, _name_of, client_or_cluster
from ._errors import CallFailed, DependencyError
from ._future import Future, cancel_and_notify
from ._options import Options

# What executorlib calls otherwise.
_RENAMED = {
    "threads_per_core": "cpus",
    "gpus_per_core": "gpus",
    "run_time_max": "time_limit",
    "restart_limit": "retries",
}
# Keys that mean nothing here, and the values that ask for nothing.
_NEUTRAL = {
    "cores": (1,),
    "num_nodes": (1,),
    "exclusive": (False,),
    "slurm_cmd_args": ([], ()),
    "openmpi_oversubscribe": (False, True),
    "error_log_file": (),
    "cache_key": (),
    "cache_directory": (),
}
# Arguments of executorlib's executors that change nothing here.
_IGNORED = (
    "block_allocation",
    "disable_dependencies",
    "hostname_localhost",
    "log_obj_size",
    "openmpi_oversubscribe",
    "refresh_rate",
    "wait",
)
_WORKER_ID = "executorlib_worker_id"


class Executor(concurrent.futures.Executor):
    """`submit(fn, *args, resource_dict={...}, **kwargs)` on a cluster.

    Without a client it connects to the default directory, and starts a local cluster of `max_cores`
    (or `max_workers`) slots if no node runs there. `init_function` returns arguments of calls, and
    runs once in each worker.
    """

    def __init__(
        self,
        max_workers=None,
        *,
        max_cores=None,
        resource_dict=None,
        init_function=None,
        restart_limit=0,
        client=None,
        **others,
    ):
        for name, value in others.items():
            if name not in _IGNORED and value not in (None, False):
                raise TypeError("%s=%r: Starling's executor has no such argument" % (name, value))
        self._defaults = {"restart_limit": restart_limit, **(resource_dict or {})}
        _options(self._defaults)
        slots = max_workers if max_cores is None else max_cores
        if slots is not None and slots < 1:
            raise ValueError("max_workers and max_cores are at least 1")
        self._has_ids = not others.get("block_allocation") or slots == 1
        self._init = init_function
        self._init_key = None
        if init_function is not None:
            self._init_key = _pickling.digest(_pickling.function_bytes(init_function))
        self._owned = None
        if client is None:
            client = self._owned = client_or_cluster(slots)
        self._client = client
        self._slots = slots
        self._lock = threading.Lock()
        self._open = set()
        self._is_shut = False
        _executors.add(self)

    @property
    def max_workers(self):
        """The slots of the cluster."""
        return self._client.slots

    @property
    def info(self):
        """The settings; None after the end."""
        if self._is_shut:
            return None
        return {"max_workers": self._slots, "job": self._client.job, **self._defaults}

    def submit(self, fn, /, *args, resource_dict=None, **kwargs):
        if not callable(fn):
            raise TypeError("%r is not callable" % (fn,))
        if "resource_dict" in _parameters(fn):
            raise ValueError("a function with an argument resource_dict would never get it")
        options, cwd = _options({**self._defaults, **(resource_dict or {})})
        if _WORKER_ID in _parameters(fn) and self._has_ids:
            # Calls do not share a pool of numbered workers.
            kwargs.setdefault(_WORKER_ID, 0)
        if not options.name:
            options = options.changed({"name": _name_of(fn)})
        called = fn
        if self._init is not None:
            called = Preset(called, self._init, self._init_key)
        if cwd is not None:
            called = InDirectory(called, str(cwd))
        with self._lock:
            if self._is_shut:
                raise RuntimeError("cannot schedule new futures after shutdown")
        return self._keep(self._start(options, called, args, kwargs))

    def _start(self, options, fn, args, kwargs):
        """The future of a call, which is submitted once the values of other libraries are there."""
        try:
            args, kwargs = self._own(args), self._own(kwargs)
        except InputFailed as failed:
            return Known(error=failed.args[0])
        waits = list(_foreign(self._client, (args, kwargs)))
        if not waits:
            future = self._client._submit(options, fn, args, kwargs)
            future._raises = _as_there
            return future
        return Later(waits, lambda: self._start(options, fn, args, kwargs))

    def _own(self, part):
        """The same arguments with futures of Starling where that is possible now."""
        kind = type(part)
        if kind in (list, tuple):
            return kind(self._own(each) for each in part)
        if kind is dict:
            return {key: self._own(each) for key, each in part.items()}
        if kind.__name__ == "FutureSelector" and kind.__module__.startswith("executorlib."):
            return self._own(get_item_from_future(self._own(part._future), part._selector))
        if isinstance(part, Later) and part.inner is not None:
            return self._own(part.inner)
        if _is_foreign(self._client, part) and part.done():
            return self._own(_value_of(part))
        return part

    def _keep(self, future):
        with self._lock:
            self._open.add(future)
        future.add_done_callback(self._forget)
        return future

    def _forget(self, future):
        if self._owned is not None:
            _read(future)
        with self._lock:
            self._open.discard(future)

    def batched(self, iterable, n):
        """Futures of lists of `n` results, in the order in which `iterable`'s futures end.

        Failures come last: the batch of a failed future raises its exception.
        """
        return Batches(list(iterable), n).futures

    def shutdown(self, wait=True, *, cancel_futures=False):
        with self._lock:
            self._is_shut = True
            left = list(self._open)
        for future in left if cancel_futures else ():
            future.cancel()
        if wait:
            self._close(left)
        elif self._owned is not None:
            threading.Thread(target=self._close, args=(left,), daemon=False).start()

    def _at_exit(self):
        self.shutdown(wait=True)

    def _close(self, left):
        concurrent.futures.wait(left)
        with self._lock:
            owned, self._owned = self._owned, None
        if owned is not None:
            for future in left:
                _read(future)
            owned.close()

    def __len__(self):
        with self._lock:
            return len(self._open)

    def __bool__(self):
        return True


def _read(future):
    """Reads the value of an ended call, which would be lost with its cluster."""
    if isinstance(future, Future) and not future.cancelled():
        try:
            future.result()
        except Exception:
            # Its reader gets it again.
            return


def _as_there(error):
    """The exception that executorlib raises: that of an input, or that of a process that ended."""
    if isinstance(error, DependencyError):
        error = error.__cause__ or error
    there = sys.modules.get("executorlib.standalone.interactive.communication")
    if there is not None and isinstance(error, (CallFailed, SystemExit)):
        known = there.ExecutorlibSocketError("%s: %s" % (type(error).__name__, error))
        known.__cause__ = error
        return known
    return error


def _parameters(fn):
    try:
        return inspect.signature(fn).parameters
    except (TypeError, ValueError):
        return {}


def _options(given):
    """The options of a call, and its directory."""
    options, cwd = {}, given.get("cwd")
    for name, value in given.items():
        if name == "cwd" or value is None:
            continue
        if name in _NEUTRAL:
            if value not in _NEUTRAL[name]:
                raise TypeError("resource_dict: Starling has no %s=%r" % (name, value))
            continue
        options[_RENAMED.get(name, name)] = value
    return Options().changed(options), cwd


# Futures of others.


def _is_foreign(client, part):
    is_future = isinstance(part, concurrent.futures.Future)
    return is_future and not (isinstance(part, Future) and part._client is client)


def _foreign(client, part):
    if isinstance(part, dict):
        part = list(part.values())
    if isinstance(part, (list, tuple)):
        for each in part:
            yield from _foreign(client, each)
    elif _is_foreign(client, part):
        yield part


class InputFailed(Exception):
    """An input of another library has failed, with the exception in `args[0]`."""


def _value_of(input):
    """The value of an ended future."""
    try:
        return input.result()
    except (Exception, SystemExit) as error:
        raise InputFailed(error) from error


class Later(concurrent.futures.Future):
    """The future of a call that cannot be submitted yet. `inner`: that of the call, afterwards."""

    def __init__(self, waits, start):
        super().__init__()
        self.inner = None
        self._start, self._left, self._count_lock = start, len(waits), threading.Lock()
        for future in waits:
            future.add_done_callback(self._one_ended)

    def _one_ended(self, _):
        with self._count_lock:
            self._left -= 1
            if self._left or self.cancelled():
                return
        try:
            inner = self._start()
        except BaseException as error:
            # Also the failure of an input.
            self._take(error=error)
            return
        self.inner = inner
        # `cancel` looks at `inner` after the same change: one of both sees the other.
        if self.cancelled():
            inner.cancel()
            return
        inner.add_done_callback(self._copy)

    def _copy(self, inner):
        if inner.cancelled():
            cancel_and_notify(self)
            return
        error = inner.exception()
        try:
            self._take(error, None if error else inner.result())
        except Exception as failed:
            self._take(error=failed)

    def _take(self, error=None, value=None):
        try:
            if error is None:
                self.set_result(value)
            else:
                self.set_exception(error)
        except concurrent.futures.InvalidStateError:
            # It was cancelled meanwhile.
            return

    def cancel(self):
        if self.inner is not None:
            return self.inner.cancel()
        if not cancel_and_notify(self):
            return False
        if self.inner is not None:
            # It was submitted meanwhile.
            self.inner.cancel()
        return True


class Batches:
    """Sorts futures into batches as they end."""

    def __init__(self, futures, n):
        if n < 1:
            raise ValueError("a batch has at least one result, not %r" % (n,))
        self._n, self._left = n, len(futures)
        self._done, self._failed, self._lock = [], [], threading.Lock()
        sizes = [min(n, len(futures) - at) for at in range(0, len(futures), n)]
        self.futures = [concurrent.futures.Future() for _ in sizes]
        self._sizes, self._next = sizes, 0
        for future in futures:
            future.add_done_callback(self._one_ended)

    def _one_ended(self, future):
        error = _failure(future)
        with self._lock:
            self._left -= 1
            if error is None:
                self._done.append(future)
            else:
                self._failed.append(error)
            full = []
            while self._next < len(self.futures) and self._is_ready():
                size = self._sizes[self._next]
                batch, self._done = self._done[:size], self._done[size:]
                more = size - len(batch)
                failed, self._failed = self._failed[:more], self._failed[more:]
                full.append((self.futures[self._next], batch, failed))
                self._next += 1
        for target, batch, failed in full:
            if not target.set_running_or_notify_cancel():
                continue
            error, values = (failed or [None])[0], None
            if error is None:
                try:
                    values = [future.result() for future in batch]
                except Exception as lost:
                    error = lost
            if error is None:
                target.set_result(values)
            else:
                target.set_exception(error)

    def _is_ready(self):
        return len(self._done) >= self._sizes[self._next] or self._left == 0


def _failure(future):
    """The exception of an ended future, or None."""
    try:
        return future.exception()
    except Exception as error:
        # It was cancelled, or the cluster does not answer.
        return error


def split_future(future, n):
    """Futures of the first `n` parts of a result."""
    return [get_item_from_future(future, k) for k in range(n)]


def get_item_from_future(future, key):
    """The future of `result[key]`. The value does not pass through this program."""
    if not isinstance(future, Future):
        return Later([future], lambda: Known(future.result()[key]))
    return future._client._submit(Options(), item, (future, key), {})


class Known(concurrent.futures.Future):
    """A future that has ended."""

    def __init__(self, value=None, error=None):
        super().__init__()
        if error is None:
            self.set_result(value)
        else:
            self.set_exception(error)


# Of the worker.


def item(value, key):
    return value[key]


class InDirectory:
    """Calls `fn` in a directory, and goes back."""

    def __init__(self, fn, directory):
        self.func, self.directory = fn, directory

    def __call__(self, /, *args, **kwargs):
        import os

        before = os.getcwd()
        os.chdir(self.directory)
        try:
            return self.func(*args, **kwargs)
        finally:
            os.chdir(before)


class Preset:
    """Calls `fn` with those results of `init` that it takes and that are not given."""

    def __init__(self, fn, init, key):
        self.func, self.init, self.key = fn, init, key

    def __call__(self, /, *args, **kwargs):
        import inspect

        from starling._worker import context

        found = context._state.setdefault("presets", {})
        if self.key not in found:
            found[self.key] = self.init() or {}
        try:
            names = inspect.signature(self.func).parameters
            given = inspect.signature(self.func).bind_partial(*args, **kwargs).arguments
        except (TypeError, ValueError):
            names = given = {}
        more = {k: v for k, v in found[self.key].items() if k in names and k not in given}
        return self.func(*args, **more, **kwargs)


_pickling.ship(__name__)

"""Joblib on Starling, and with it scikit-learn. Its import registers the backend.

    import starling.joblib
    with joblib.parallel_config("starling"):
        ...
"""

import concurrent.futures
import copy
import sys
import threading
import weakref

from joblib import register_parallel_backend
from joblib.parallel import AutoBatchingMixin, FallbackToBackend, ParallelBackendBase
from joblib.parallel import SequentialBackend, ThreadingBackend

from . import _pickling
from ._client import Chosen
from ._future import Future
from ._options import Options
from ._worker.context import current_task

# Arguments of this size or more go to the cluster once in a `Parallel` call.
LARGE = 16 << 10


class Backend(AutoBatchingMixin, ParallelBackendBase):
    """The backend `starling`. `client` and options of calls may be given to `parallel_config`.

    Without a client it takes the open one, else that of the default directory, else a new local
    cluster. Inside a call it is joblib's backend of threads.
    """

    MIN_IDEAL_BATCH_DURATION = 0.1
    MAX_IDEAL_BATCH_DURATION = 1.0
    supports_retrieve_callback = True
    default_n_jobs = -1

    def __init__(self, client=None, nesting_level=None, **options):
        super().__init__(nesting_level=nesting_level)
        self._options = Options().changed(options)
        self._chosen = Chosen(client, 'parallel_config("starling", client=client)')
        self._lock = threading.Lock()
        self._open = set()
        self._stored = {}

    @property
    def client(self):
        return self._chosen.client()

    def effective_n_jobs(self, n_jobs):
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None:
            return 1
        if n_jobs < 0:
            return max(self.client.slots + 1 + n_jobs, 1)
        return n_jobs

    def configure(self, n_jobs=1, parallel=None, **_):
        self.parallel = parallel
        if current_task() is not None:
            raise FallbackToBackend(ThreadingBackend(nesting_level=self.nesting_level))
        n_jobs = self.effective_n_jobs(n_jobs)
        if n_jobs == 1:
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        return n_jobs

    def start_call(self):
        self._stored = {}

    def stop_call(self):
        self._stored = {}

    def submit(self, func, callback=None):
        try:
            future = self._submitted(func)
        except Exception as error:
            # Joblib waits without end if this raises in a callback.
            future = concurrent.futures.Future()
            future.set_exception(error)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def _submitted(self, func):
        batch = copy.copy(func)
        batch.items = [
            (fn, tuple(self._smaller(arg) for arg in args),
             {name: self._smaller(arg) for name, arg in kwargs.items()})
            for fn, args, kwargs in func.items
        ]  # fmt: skip
        options = self._options
        if not options.name:
            options = options.changed({"name": _name_of(func)})
        future = self.client._submit(options, _run, (batch,), {})
        with self._lock:
            self._open.add(future)
        future.add_done_callback(self._ended)
        return future

    def _ended(self, future):
        with self._lock:
            self._open.discard(future)

    def retrieve_result_callback(self, out):
        return out.result()

    def abort_everything(self, ensure_ready=True):
        with self._lock:
            futures, self._open = self._open, set()
        self.client._cancel_all(futures)
        if ensure_ready:
            self.configure(self.parallel.n_jobs, self.parallel)

    def _smaller(self, arg):
        """A large argument as a put, once for each object in a call of `Parallel`."""
        size = getattr(arg, "nbytes", None)
        if not isinstance(size, int):
            size = sys.getsizeof(arg, 0)
        if size < LARGE or isinstance(arg, Future):
            return arg
        found = self._stored.get(id(arg))
        if found is not None and found[0]() is arg:
            return found[1]
        future = self.client.put(arg)
        try:
            self._stored[id(arg)] = weakref.ref(arg), future
        except TypeError:
            # Lists and bytes have no weak references; equal bytes are stored once anyway.
            pass
        return future


def _run(batch):
    # Inside a call the backend's name means threads: batches are short.
    from joblib import parallel

    parallel.BACKENDS.setdefault("starling", parallel.ThreadingBackend)
    return batch()


def _name_of(batch):
    fn = batch.items[0][0] if batch.items else batch
    return getattr(fn, "__qualname__", None) or type(fn).__qualname__


def register(name="starling", **options):
    """Registers the backend, which the import has done already for its own name."""
    register_parallel_backend(name, Backend, **options)


_pickling.ship(__name__)
register()

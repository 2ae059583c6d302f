"""A strict `concurrent.futures.Executor` over a client."""

import collections
import concurrent.futures
import os
import threading

from . import _pickling
from ._client import _executors, client_or_cluster
from ._future import PumpedFuture
from ._options import Options

# Calls on the cluster for each worker: one runs, one waits there.
WINDOW = 2


class Executor(concurrent.futures.Executor):
    """`submit` here, run on the cluster.

    Without a client it connects to the default directory, and starts a local cluster if no node
    runs there. At most `2 * max_workers` calls are on the cluster; the others can be cancelled.
    """

    def __init__(self, max_workers=None, *, client=None, **options):
        if max_workers is not None and max_workers <= 0:
            raise ValueError("max_workers must be greater than 0")
        self._options = Options().changed(options)
        self._owned = None
        if client is None:
            client = self._owned = client_or_cluster(max_workers)
        self._client = client
        self._max_workers = max_workers or max(1, client.slots)
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._waiting = collections.deque()
        self._running = {}
        self._is_shut = False
        self._pid = os.getpid()
        _executors.add(self)

    def submit(self, fn, /, *args, **kwargs):
        if not callable(fn):
            raise TypeError("%r is not callable" % (fn,))
        pump = self._client._pump
        future = PumpedFuture(pump) if pump else concurrent.futures.Future()
        with self._lock:
            if self._is_shut:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._waiting.append((future, fn, args, kwargs))
        self._fill()
        return future

    def _fill(self):
        """Submits while there is room. A call that cannot be submitted fails its future."""
        while True:
            with self._lock:
                if not self._waiting or len(self._running) >= WINDOW * self._max_workers:
                    return
                future, fn, args, kwargs = self._waiting.popleft()
                if not future.set_running_or_notify_cancel():
                    self._idle.notify_all()
                    continue
                self._running[future] = None
            try:
                options = self._client._completed(self._options)
                function = _pickling.function_bytes(options.wrapped(fn))
                call = self._client._call(options, function, fn, args, kwargs)
            except BaseException as error:
                self._ended(future, error=error)
                continue
            call.add_done_callback(lambda call, future=future: self._copy(call, future))

    def _copy(self, call, future):
        # In the dispatcher's thread, which waits for the value of a large result.
        try:
            error = call.exception()
        except concurrent.futures.CancelledError as cancelled:
            error = cancelled
        if error is None:
            try:
                self._ended(future, value=call.result())
            except BaseException as failed:
                self._ended(future, error=failed)
        else:
            self._ended(future, error=error)
        self._fill()

    def _ended(self, future, value=None, error=None):
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)
        with self._lock:
            self._running.pop(future, None)
            self._idle.notify_all()

    def shutdown(self, wait=True, *, cancel_futures=False):
        with self._lock:
            self._is_shut = True
            waiting = []
            if cancel_futures:
                # Taken from `_fill` first, which else might start or notify one of them meanwhile.
                waiting, self._waiting = self._waiting, collections.deque()
        for future, *_ in waiting:
            # Some may be cancelled already; their waiters are told here, too.
            future.cancel()
            future.set_running_or_notify_cancel()
        with self._lock:
            self._idle.notify_all()
        if wait:
            self._wait_until_idle()
            self._close()
        elif self._owned is not None and self._client._pump is None:
            # In a call the client ends with the call.
            threading.Thread(target=self._close_when_idle, daemon=False).start()

    def _at_exit(self):
        if self._pid == os.getpid():
            self.shutdown(wait=True)

    def _wait_until_idle(self):
        if self._client._pump is not None:
            self._client._pump(lambda: not (self._running or self._waiting))
            return
        with self._lock:
            while self._running or self._waiting:
                self._idle.wait()

    def _close_when_idle(self):
        self._wait_until_idle()
        self._close()

    def _close(self):
        owned, self._owned = self._owned, None
        if owned is not None:
            owned.close()

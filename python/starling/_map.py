"""Lazy maps and the waits for several futures."""

import asyncio
import collections
import concurrent.futures
import threading
import time

from . import _pickling
from ._future import end_wait

AHEAD = 4096


class Map:
    """An iterator over the futures of a map, in the order of the arguments.

    Calls are submitted as the futures are taken, `ahead` of them; the arguments may be endless.
    """

    def __init__(self, client, options, fn, iterables, ahead):
        if not iterables:
            raise TypeError("map needs at least one iterable of arguments")
        if ahead is not None and ahead < 1:
            raise ValueError("ahead is at least 1, not %r" % (ahead,))
        if not callable(fn):
            raise TypeError("%r is not callable" % (fn,))
        options = client._completed(options)
        self._client, self._options = client, options
        self._fn, self._function = fn, _pickling.function_bytes(options.wrapped(fn))
        self._arguments = zip(*iterables)
        self._ahead = ahead or AHEAD
        self._submitted = collections.deque()
        self._submit()

    def _submit(self):
        while self._arguments is not None and len(self._submitted) < self._ahead:
            try:
                args = next(self._arguments)
            except StopIteration:
                self._arguments = None
                return
            call = self._client._call
            self._submitted.append(call(self._options, self._function, self._fn, args, {}))

    def __iter__(self):
        return self

    def __next__(self):
        if not self._submitted:
            self._submit()
        if not self._submitted:
            raise StopIteration
        future = self._submitted.popleft()
        if len(self._submitted) <= self._ahead * 3 // 4:
            self._submit()
        return future

    def results(self):
        """The results in order; a failed call raises."""
        for future in self:
            yield future.result()


class as_completed:
    """The futures as they end: for `for` and for `async for`. A `Map` is read as far as needed."""

    def __init__(self, futures, timeout=None):
        self._source = iter(futures if isinstance(futures, Map) else set(futures))
        self._window = futures._ahead if isinstance(futures, Map) else None
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._ended = collections.deque()
        self._pending = set()
        self._wake = None
        self._condition = threading.Condition()
        self._pump = None
        self._fill()

    def _fill(self):
        while self._source is not None:
            if self._window is not None and len(self._pending) + len(self._ended) >= self._window:
                return
            try:
                future = checked(next(self._source), "as_completed")
            except StopIteration:
                self._source = None
                return
            with self._condition:
                self._pending.add(future)
            self._pump = getattr(getattr(future, "_client", None), "_pump", self._pump)
            future.add_done_callback(self._done)

    def _done(self, future):
        with self._condition:
            self._pending.discard(future)
            self._ended.append(future)
            self._condition.notify()
            wake = self._wake
        if wake is not None:
            try:
                wake()
            except RuntimeError:
                # The loop has ended.
                return

    def _left(self):
        return None if self._deadline is None else self._deadline - time.monotonic()

    def _late(self):
        return TimeoutError("%d futures have not ended" % len(self._pending))

    def __iter__(self):
        return self

    def __next__(self):
        with self._condition:
            while not self._ended:
                if not self._pending:
                    raise StopIteration
                left = self._left()
                if left is not None and left <= 0:
                    raise self._late()
                if self._pump is not None:
                    self._pump(lambda: self._ended, left)
                else:
                    self._condition.wait(left)
            future = self._ended.popleft()
        self._fill()
        return future

    def __aiter__(self):
        return self

    async def __anext__(self):
        loop = asyncio.get_running_loop()
        while True:
            with self._condition:
                if self._ended:
                    future = self._ended.popleft()
                    break
                if not self._pending:
                    raise StopAsyncIteration
            if self._pump is not None:
                self._pump(lambda: self._ended, self._left())
                if not self._ended:
                    raise self._late()
                continue
            with self._condition:
                if self._ended:
                    continue
                waiter = loop.create_future()
                self._wake = lambda: loop.call_soon_threadsafe(end_wait, waiter)
            try:
                await asyncio.wait_for(waiter, self._left())
            except asyncio.TimeoutError:
                raise self._late() from None
            finally:
                self._wake = None
        self._fill()
        return future


def wait(futures, timeout=None, return_when=concurrent.futures.ALL_COMPLETED):
    """As `concurrent.futures.wait`."""
    futures = [checked(future, "wait") for future in futures]
    return concurrent.futures.wait(futures, timeout, return_when)


def checked(future, name):
    if not isinstance(future, concurrent.futures.Future):
        raise TypeError("%s takes futures, not %r" % (name, future))
    return future

"""Reads results: from their node, from one with a copy, or after they were made again."""

import threading
import time

from ._errors import ClientClosed, ClusterError, ResultLost
from ._future import DONE, Future, dispatching

# The name of the tasks that make a lost result again. It is no name of a function.
READ_NAME = "<read>"
# How often one read makes the result again: the nodes that have it may die meanwhile.
TRIES_MAX = 3
# Between the questions of a callback, which must not wait for ends.
PAUSE, PAUSE_MAX = 0.005, 0.2
# Meanwhile no other end comes.
CALLBACK_SECONDS_MAX = 60
READERS_MAX = 4096

# `futures`: those that are read in this thread.
_gathering = threading.local()


def fetch(client, future, timeout=None):
    """The bytes of a result of this client; at most `timeout` seconds for one that is lost."""
    if client._closed:
        raise ClientClosed("the client was closed before the result was read")
    end, until = future._end, None if timeout is None else time.monotonic() + timeout
    try:
        return _read(client, (client._number, future._local), (end.attempt, end.node), until, end.size)
    except (ClusterError, ResultLost) as error:
        first = error
    try:
        return _elsewhere(client, future, until)
    except (ClusterError, ResultLost) as error:
        text = "the result of task %s: %s" % (future.task, first)
        if str(error) and str(error) != str(first):
            text += "; %s" % error
        is_lost = isinstance(first, ResultLost) or isinstance(error, ResultLost)
        raise (ResultLost if is_lost else ClusterError)(text) from first


def _read(client, task, place, until, size):
    """The bytes at an attempt and a node; `TimeoutError` after `until`.

    The call has ended, so its bytes have the time to come, also with a timeout of 0.
    """
    within = None if until is None else max(until - time.monotonic(), 1 + size / 10**7)
    return client._core.fetch(*task, *place, within=within)


def _elsewhere(client, future, until):
    client._job.flush()
    data = _of_holders(client, future, (), until)
    for _ in range(TRIES_MAX):
        if data is not None:
            return data
        node = _made_again(client, future, until)
        data = _of_holders(client, future, (node,), until)
    if data is None:
        raise ResultLost("it was lost %d times while it was read" % (TRIES_MAX + 1))
    return data


def _of_holders(client, future, first, until):
    """The bytes from one of the nodes that have them; None if none of these answers."""
    number, local, end = client._number, future._local, future._end
    try:
        found = client._core.holders(number, local)
    except ClusterError:
        return None
    if found is None:
        return None
    attempt, nodes = found
    for node in (*first, *(node for node in nodes if node not in first)):
        if not first and (attempt, node) == (end.attempt, end.node):
            # It was asked before.
            continue
        try:
            data = _read(client, (number, local), (attempt, node), until, end.size)
        except (ClusterError, ResultLost):
            continue
        # What the call has printed is there too, if it ran again.
        end.attempt = attempt
        end.node = nodes[0] if nodes else node
        return data
    return None


def _made_again(client, future, until):
    """Waits for a task that reads the result: each reader of a lost result has it made again.

    Returns the node of the reader, which has the result then.
    """
    reader = future._reader
    if reader is None:
        reader = future._reader = _reader(client, future)
    if getattr(dispatching, "here", False):
        is_done, node, text = _asked(client, reader, until)
    else:
        left = None if until is None else max(0, until - time.monotonic())
        error = Future.exception(reader, left)
        end = reader._end
        is_done = error is None and end is not None and end.verdict == DONE
        node, text = end.node if end is not None else 0, str(error)
        if error is not None and end is None:
            # The client was closed, or its job cannot be followed.
            raise error
        if not is_done and end is not None and end.error:
            text = end.error
    future._reader = None
    if not is_done:
        raise ResultLost("it cannot be made again: %s" % text)
    return node


def _reader(client, future):
    """A task that reads the result; one more for each result of its node that is read next."""
    spec = client._job.reader(READ_NAME)
    reader = client._append(spec, b"", (future,), READ_NAME)
    for other in getattr(_gathering, "futures", ())[:READERS_MAX]:
        if other is not future and other._client is client and _is_beside(other, future):
            other._reader = client._append(spec, b"", (other,), READ_NAME)
    client._job.flush()
    return reader


def _is_beside(other, future):
    is_same = other._is_unread() and other._end.node == future._end.node
    return is_same and other._reader is None


class Gathering:
    """Inside of it all these futures are read: what is lost of them is made again at once."""

    def __init__(self, futures):
        self.futures = [future for future in futures if isinstance(future, Future)]

    def __enter__(self):
        self.outer = getattr(_gathering, "futures", ())
        _gathering.futures = self.futures

    def __exit__(self, *_):
        _gathering.futures = self.outer


def _asked(client, reader, until):
    """In a callback, where ends do not come: asks until the reader has ended."""
    if client._pump is not None:
        raise ResultLost("a callback in a call cannot wait until it is made again")
    pause, last = PAUSE, time.monotonic() + CALLBACK_SECONDS_MAX
    while True:
        ended = client._core.ended(client._number, reader._local)
        if ended is not None:
            return ended
        if until is not None and time.monotonic() > until:
            raise TimeoutError()
        if time.monotonic() > last:
            text = "it is not made again after %d s, and a callback waits no longer; read it later"
            raise ResultLost(text % CALLBACK_SECONDS_MAX)
        time.sleep(pause)
        pause = min(2 * pause, PAUSE_MAX)

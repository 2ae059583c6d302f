"""The client: one open job, its functions, its futures."""

import atexit
import dataclasses
import os
import sys
import threading
import typing
import weakref

from . import _command, _nested, _pickling, _reading, _show, _values
from ._errors import ClientClosed, ClusterError, StarlingError, TooLarge
from ._future import End, Future, dispatching
from ._map import Map
from ._options import Options, silence
from ._runtime import Runtime, inherited
from ._worker.context import applied

INLINE_FUNCTION_MAX = 2048
PAYLOAD_MAX = 16 << 10
RELEASE_AT = 256
# Handles to its job that a client makes after refused calls.
HANDLES_MAX = 64

# What ends at the exit of the interpreter, in this order.
_executors: "weakref.WeakSet[typing.Any]" = weakref.WeakSet()
_clients: "weakref.WeakSet[typing.Any]" = weakref.WeakSet()
_clusters: "weakref.WeakSet[typing.Any]" = weakref.WeakSet()


class Client:
    """A connection to a cluster, with one open job for its calls.

    Without arguments it uses the directory in `STARLING_DIR`, else the default one.

    A client that the cluster does not hear for `silent_after` seconds is silent. Its calls run on,
    and `attach` continues the job within 24 h; then the job is closed. With
    `on_silence="cancel"` the job is cancelled at once.
    """

    def __init__(
        self,
        dir=None,
        *,
        name=None,
        python=None,
        preload=(),
        env=None,
        runtime=None,
        on_silence="close",
        silent_after=60.0,
        _core=None,
    ):
        self._silence = silence(on_silence, silent_after)
        self._core = _core or _connect(dir)
        self._dir = dir
        self._name = name or os.path.basename(sys.argv[0] or "") or "python"
        is_given = bool(python or preload or env)
        if is_given and runtime is not None:
            raise TypeError("a client has a runtime, or python, preload and env, not both")
        self._cwd = _working_directory()
        self._runtime = Runtime(python, preload=preload, env=env)._fields(self._cwd)
        # In a call: how to wait, and the call that has made this client.
        self._pump = getattr(self._core, "pump", None)
        self._call_number = _nested.call() if self._pump else None
        self._inherited = None
        if self._pump and not is_given:
            # That of the call.
            self._runtime = None
            self._inherited = inherited(self._call_number)
        self._options = Options().changed({"runtime": runtime})
        self._lock = threading.Lock()
        self._job = self._number = None
        self._closed = False
        self._broken = None
        # A call with needs that may be refused is stored alone; see `_try`.
        self._try_lock = threading.Lock()
        self._tries, self._handles, self._lost_text = False, 0, None
        self._futures = {}
        self._released = []
        self._specs = {}
        self._functions = set()
        self._uploaded = {}
        self._puts = weakref.WeakValueDictionary()
        self._attached = []
        self._cluster = None
        self._pid = os.getpid()
        _clients.add(self)

    # Submitting.

    def submit(self, fn, /, *args, **kwargs):
        """Calls `fn` on the cluster and returns its future. Every keyword is the function's."""
        return self._submit(self._options, fn, args, kwargs)

    def map(self, fn, /, *iterables, ahead=None):
        """A lazy sequence of futures, one for each set of arguments.

        At most `ahead` calls are submitted before their futures are taken from it.
        """
        return Map(self, self._options, fn, iterables, ahead)

    def options(self, **options):
        """The same client with options for its calls; see `Options`."""
        return Bound(self, self._options.changed(options))

    def put(self, value):
        """Stores a value on the cluster, once for equal bytes, and returns its future."""
        return _values.put(self, value)

    def gather(self, futures):
        """The results in a structure of lists, tuples, dicts and futures."""
        return _values.gather(futures)

    def command(self, argv, *, cwd=None, env=None, stdin=None, check=True):
        """Runs a program on the cluster; see `Bound.command`."""
        return _command.submit(self, self._options, argv, cwd, env, stdin, check)

    def file(self, path):
        """Stores a file of this machine and returns its future, an argument of commands."""
        return _command.file(self, path)

    def raw(self, future, timeout=None):
        """The bytes of a result, which are not unpickled."""
        return future.raw(timeout)

    def _submit(self, options, fn, args, kwargs):
        if not callable(fn):
            raise TypeError("%r is not callable" % (fn,))
        options = self._completed(options)
        function = _pickling.function_bytes(options.wrapped(fn))
        return self._call(options, function, fn, args, kwargs)

    def _completed(self, options):
        """In a call: with what its runtime does beside the program."""
        if self._inherited is None or options.runtime is not None:
            return options
        return dataclasses.replace(options, runtime=self._inherited)

    def _call(self, options, function, fn, args, kwargs):
        kind = _name_of(fn)
        if function is None:
            # Futures in a closure or a partial are edges like those in the arguments.
            function = _pickling.function_bytes(options.wrapped(applied))
            args = (fn, *args)
        data, parents = _pickling.call_bytes(args, kwargs)
        if len(data) > PAYLOAD_MAX:
            data, parents = _values.shrink(self, args, kwargs, PAYLOAD_MAX)
        for parent in parents:
            if parent._client is not self or parent._local is None:
                raise ValueError("%r belongs to another client" % (parent,))
        job = self._open()
        key = (_pickling.digest(function), options, len(parents))
        is_tried = options.may_be_refused() and self._pump is None and key not in self._specs
        spec = self._spec(job, options, function, kind, key)
        make = self._try if is_tried else self._append
        try:
            return make(spec, data, parents, options.name or kind)
        except ClusterError:
            self._specs.pop(key, None)
            raise

    def _append(self, spec, data, parents, name):
        edges = [(parent._local, 0) for parent in parents]
        with self._lock:
            # Another thread may have closed it since.
            if self._closed:
                raise ClientClosed("the client is closed")
            if self._broken is not None:
                raise ClusterError(self._broken)
            local = self._job.append(spec, data, edges)
            future = Future(self, local, name, parents)
            self._futures[local] = future
        return future

    def _try(self, spec, data, parents, name):
        """Stores a call alone. If it is refused, the others and the client go on."""
        with self._try_lock:
            self._job.flush()
            self._tries = True
            try:
                future = self._append(spec, data, parents, name)
                try:
                    self._flush_whole()
                except ClusterError as error:
                    with self._lock:
                        self._futures.pop(future._local, None)
                    future._local = None
                    self._join_again(str(error))
                    raise
            finally:
                self._tries = False
            if self._lost_text is not None:
                self._lost(self._lost_text)
        return future

    def _flush_whole(self):
        """A flush of which the outcome must be known: Ctrl-C counts after it."""
        interrupt = None
        while True:
            try:
                self._job.flush()
                break
            except KeyboardInterrupt as raised:
                interrupt = raised
        if interrupt is not None:
            raise interrupt

    def _join_again(self, text):
        """A further handle to the job, in the place of one that has failed."""
        self._handles += 1
        self._lost_text = None
        if self._handles > HANDLES_MAX:
            return self._lost(text)
        try:
            job = self._core.join_job(self._number, self._ended, self._lost_of(self._handles))
            stored = {local for local, _ in self._core.tasks(self._number)}
        except ClusterError:
            return self._lost(text)
        with self._lock:
            self._job = job
            lost = [self._futures.pop(local) for local in list(self._futures) if local not in stored]
        for future in lost:
            # Of other threads, in the same moment.
            future._broken(ClusterError("%s was not stored; submit it again" % future._title()))

    def _open(self):
        if self._job is None or self._closed or self._pid != os.getpid():
            with self._lock:
                if self._pid != os.getpid():
                    raise ClientClosed("a fork has no connection of its own; make a new Client in it")
                if self._closed:
                    raise ClientClosed("the client is closed")
                if self._job is None:
                    self._job = self._core.open_job(
                        self._name, self._ended, self._lost_of(0), *self._silence
                    )
                    self._number = self._job.id
        self._job.room()
        return self._job

    def _spec(self, job, options, function, kind, whole):
        key, _, inputs = whole
        found = self._specs.get(whole)
        if found is None:
            body = b""
            if len(function) <= INLINE_FUNCTION_MAX:
                body = function
            elif key not in self._functions:
                self._upload(key, function)
            runtime = self._runtime
            if options.runtime:
                runtime = options.runtime._fields(self._cwd)
            environment = options.runtime.environment if options.runtime else None
            if environment is not None and self._pump is None:
                environment._put(self._dir or default_dir())
            found = job.spec(options.fields(kind), runtime, key, body, inputs)
            if len(self._specs) >= 4096:
                self._specs.clear()
            self._specs[whole] = found
        return found

    def _upload(self, key, data):
        if len(data) > _values.FUNCTION_MAX:
            text = "a function with what it refers to has %d bytes, at most %d; give large values as arguments"
            raise TooLarge(text % (len(data), _values.FUNCTION_MAX))
        self._core.kv_insert(b"function/" + key.hex().encode(), data)
        self._functions.add(key)

    # Ends, from the dispatcher's thread.

    def _ended(self, ends):
        dispatching.here = True
        try:
            self._finish(ends)
        finally:
            dispatching.here = False

    def _finish(self, ends):
        finished = []
        with self._lock:
            for local, *end in ends:
                future = self._futures.pop(local, None)
                if future is not None:
                    finished.append((future, end))
        for future, end in finished:
            try:
                future._finish(End(*end))
            except Exception as error:
                # The others of the batch end all the same.
                future._broken(error)
        del finished[:]
        if len(self._released) >= RELEASE_AT or not self._futures:
            self._release()

    def _lost_of(self, handle):
        """What hears that the handle with this number has failed."""

        def lost(text):
            if handle != self._handles:
                return
            if self._tries:
                self._lost_text = text
            else:
                self._lost(text)

        return lost

    def _lost(self, text):
        """From the dispatcher: no more ends can come."""
        with self._lock:
            futures, self._futures = list(self._futures.values()), {}
            self._broken = text
        for future in futures:
            future._broken(ClusterError(text))

    def _forget(self, local):
        """A future is gone; its result is not held any longer."""
        if local is None or self._closed:
            return
        self._released.append(local)
        if len(self._released) >= RELEASE_AT:
            self._release()

    def _release(self):
        job = self._job
        if job is None or self._closed or not self._released:
            return
        released, self._released = self._released, []
        job.release(released)

    # What futures ask.

    def _fetch(self, future, timeout=None):
        return _reading.fetch(self, future, timeout)

    def _printed(self, future, stderr):
        if future._end is None:
            raise RuntimeError("%r has not ended" % (future,))
        if self._closed:
            raise ClientClosed("the client is closed")
        data = self._core.printed(self._number, future._local, future._end.node, stderr)
        return data.decode("utf-8", "replace")

    def _explained(self, future):
        if self._closed:
            raise ClientClosed("the client is closed")
        self._job.flush()
        return "\n".join(self._core.explain(self._number, future._local))

    def _traceback(self, future):
        try:
            text = self._printed(future, True)
        except Exception:
            return ""
        at = text.rfind("Traceback (most recent call last):")
        return text[at:] if at >= 0 else ""

    def _is_running(self, future):
        """False if no node can tell."""
        if self._closed or future._local is None or self._pid != os.getpid():
            return False
        try:
            self._job.flush()
            return self._core.is_running(self._number, future._local)
        except (StarlingError, RuntimeError):
            # In a call, another thread than the main one cannot ask.
            return False

    def _cancel(self, future, kill):
        if self._closed:
            return False
        try:
            # The home must know the call.
            self._job.flush()
            if not kill and self._core.is_running(self._number, future._local):
                return False
            if not self._core.cancel(self._number, [future._local]):
                return future.cancelled()
        except ClusterError:
            if kill:
                raise
            # `concurrent.futures.Future.cancel` does not raise.
            return future.cancelled()
        with self._lock:
            self._futures.pop(future._local, None)
        return future._cancelled_here() or future.cancelled()

    def _cancel_all(self, futures):
        """Ends calls in any case, with one request."""
        open_futures = [future for future in futures if not future.done()]
        if self._closed or not open_futures:
            return
        self._job.flush()
        self._core.cancel(self._number, [future._local for future in open_futures])
        with self._lock:
            for future in open_futures:
                self._futures.pop(future._local, None)
        for future in open_futures:
            future._cancelled_here()

    def _task_text(self, local):
        return "%s.%s" % (self._number, self._core.local_text(local))

    # The whole.

    @property
    def job(self):
        """The number of the client's job; None before the first call."""
        return self._number

    @property
    def slots(self):
        return sum(node["slots"] for node in self._core.nodes())

    def futures(self):
        """The futures of all calls of a job that was attached to, in the order of submission."""
        return list(self._attached)

    def detach(self):
        """Ends the client and leaves its job open: `starling.attach(job)` continues it.

        Returns the number of the job. Results that were in use stay on the cluster.
        """
        if self._pump is not None:
            raise ClusterError("a call cannot detach from its job, which ends with the call")
        job = self._open()
        with self._lock:
            if self._closed:
                raise ClientClosed("the client is closed")
            # First of all, so that no other thread submits a call that is not stored.
            self._closed = True
            open_futures, self._futures = list(self._futures.values()), {}
            released, self._released = self._released, []
        try:
            job.flush()
            if released:
                job.release(released)
            job.detach()
        finally:
            try:
                self._core.close()
            finally:
                self._break(open_futures, "the client was detached from job %d" % job.id)
        return job.id

    def _end_with_call(self):
        """The call that has made this client has ended, and its calls end with it."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            open_futures, self._futures = list(self._futures.values()), {}
        for key in self._uploaded if not open_futures else ():
            self._core.kv_remove(key)
        self._break(open_futures, "the call that submitted %(call)s has ended")

    def _break(self, futures, text):
        """The client is closed; the ends of these futures will not come."""
        for future in futures:
            future._broken(ClientClosed(text % {"call": future._title()}))
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster._client_closed()

    def _place_of(self, local):
        # "PARTITION.NUMBER"; the numbers count the tasks of the whole job.
        return int(self._core.local_text(local).rpartition(".")[2])

    def _attach(self, job):
        """Before the first call: the job and its tasks as futures. Ends come at once."""
        self._number = job
        try:
            tasks = sorted(self._core.tasks(job), key=lambda task: self._place_of(task[0]))
            for local, name in tasks:
                future = Future(self, local, name or "call", ())
                self._futures[local] = future
                if name not in (_values.PUT_NAME, _reading.READ_NAME):
                    self._attached.append(future)
            self._job = self._core.attach_job(job, self._ended, self._lost_of(0))
        except BaseException:
            self._closed = True
            self._core.close()
            raise

    def close(self):
        """Closes the job, which runs on; futures without a result raise `ClientClosed`.

        The bytes of puts are removed from the cluster if no call is open, else they stay there.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            open_futures, self._futures = list(self._futures.values()), {}
        try:
            if self._pid == os.getpid():
                self._close_core(not open_futures and self._broken is None)
        finally:
            self._break(open_futures, "the client was closed before %(call)s ended")

    def _close_core(self, has_ended):
        """Calls that run on may still need what was put."""
        try:
            if self._job is not None:
                self._job.close()
            for key in self._uploaded if has_ended else ():
                self._core.kv_remove(key)
        finally:
            self._core.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __repr__(self):
        if self._closed:
            return "<Client closed>"
        nodes = self._core.nodes()
        slots = sum(node["slots"] for node in nodes)
        text = "<Client of %d nodes with %d slots, job %s, %d calls open>"
        return text % (len(nodes), slots, self.job, len(self._futures))

    def _repr_html_(self):
        return _show.client_html(self)


def attach(job, dir=None, **options):
    """A client of a job that another client was detached from; `futures()` has its calls."""
    client = Client(dir, **options)
    client._attach(job)
    return client


class Bound:
    """A client with options for its calls."""

    def __init__(self, client, options):
        self._client, self._options = client, options

    def submit(self, fn, /, *args, **kwargs):
        return self._client._submit(self._options, fn, args, kwargs)

    def map(self, fn, /, *iterables, ahead=None):
        return Map(self._client, self._options, fn, iterables, ahead)

    def command(self, argv, *, cwd=None, env=None, stdin=None, check=True):
        """Runs a program in a directory of its own, or in `cwd`, and returns the future of a `Done`.

        Parts of `argv` are texts, futures, `out(name)`, and tuples of these, which are joined. With
        `check` another exit code than 0 raises `subprocess.CalledProcessError`.
        """
        return _command.submit(self._client, self._options, argv, cwd, env, stdin, check)

    def options(self, **options):
        return Bound(self._client, self._options.changed(options))


def default_client(named="task.on(client)", make=None):
    """The one open client, or a new one of the default directory if none is open."""
    call = _nested.call()
    here = [client for client in _clients if not client._closed and client._pid == os.getpid()]
    here = [client for client in here if client._call_number == call]
    if len(here) > 1:
        raise RuntimeError("%d clients are open; name one: %s" % (len(here), named))
    return here[0] if here else (make or Client)()


def client_or_cluster(slots=None):
    """A client of the default directory; of a new local cluster if no node runs there.

    In a call it is a client of the call's own job.
    """
    if _nested.call() is not None:
        return Client()
    try:
        return Client(default_dir())
    except ClusterError:
        from ._cluster import LocalCluster

        return LocalCluster(nodes=1, slots=slots).client()


class Chosen:
    """The client of an adapter: a given one, else one that is found, as long as it is open."""

    def __init__(self, client, named):
        self._given, self._found, self._named = client, None, named

    def client(self):
        if self._given is not None:
            return self._given
        found = self._found
        if found is None or found._closed or found._pid != os.getpid():
            self._found = default_client(self._named, client_or_cluster)
        return self._found


def _working_directory():
    try:
        return os.getcwd()
    except OSError:
        return None  # It was removed.


def _connect(dir):
    if dir is None or os.fspath(dir) == os.environ.get("STARLING_DIR"):
        core = _nested.core()
        if core is not None:
            return core
    try:
        from . import _core
    except ImportError as error:
        raise ClusterError("the extension module starling._core is missing: %s" % error) from error
    return _core.connect(os.fspath(dir) if dir is not None else default_dir())


def default_dir():
    """As the command line has it."""
    if os.environ.get("STARLING_DIR"):
        return os.environ["STARLING_DIR"]
    if os.environ.get("XDG_RUNTIME_DIR"):
        return os.path.join(os.environ["XDG_RUNTIME_DIR"], "starling", "default")
    temporary = os.environ.get("TMPDIR") or "/tmp"
    return os.path.join(temporary, "starling-%d" % os.getuid(), "default")


def _name_of(fn):
    inner = getattr(fn, "func", fn)
    return getattr(inner, "__qualname__", None) or type(fn).__qualname__


def _close_all():
    steps = [executor._at_exit for executor in list(_executors)]
    steps += [client.close for client in list(_clients) if client._pid == os.getpid()]
    steps += [cluster.close for cluster in list(_clusters)]
    for step in steps:
        try:
            step()
        except Exception as error:
            # The others are closed all the same.
            print("starling: at exit: %s" % error, file=sys.stderr)


atexit.register(_close_all)

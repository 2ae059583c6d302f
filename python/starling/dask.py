"""Dask's collections on Starling: a scheduler for `dask.compute` and `dask.persist`.

    from starling.dask import StarlingClient
    dask.config.set(scheduler=StarlingClient())     # or x.compute(scheduler=get)
"""

import concurrent.futures
import functools
import threading
import weakref

import dask
from dask._task_spec import Alias, DataNode, convert_legacy_graph, cull
from dask.local import nested_get
from dask.order import order
from dask.utils import key_split

from . import _pickling, _values
from ._client import Chosen
from ._errors import DependencyError
from ._options import Options

# A value of the graph up to this size travels with the calls that read it.
SMALL = 1024
# A call has room for about 1,800 futures; one with more inputs gets lists of this many.
INPUTS_MAX = 512

_pickling.ship(__name__)


def _execute(task, plain, keys, *values):
    return task({**plain, **dict(zip(keys, values))})


def _execute_lists(task, plain, keys, *lists):
    return _execute(task, plain, keys, *(value for values in lists for value in values))


def _same(value):
    return value


def _listed(*values):
    return list(values)


class Held:
    """A key of a graph. Its value stays on the cluster while this object is in use."""

    __dask_future__ = True

    def __init__(self, key, future):
        self.key, self.future = key, future

    def result(self, timeout=None):
        return _value(self.future, timeout)

    def exception(self, timeout=None):
        return self.future.exception(timeout)

    def done(self):
        return self.future.done()

    def cancel(self, kill=False):
        return self.future.cancel(kill)

    def cancelled(self):
        return self.future.cancelled()

    def __await__(self):
        return self.future.__await__()

    def __dask_tokenize__(self):
        return "starling", self.key

    def __reduce__(self):
        # In the arguments of a call it is its value.
        return self.future.__reduce__()

    def __repr__(self):
        return "<Held %r: %r>" % (self.key, self.future)


class _Registry:
    """The `Held`s in use by key. Several may have one key, each with its own future."""

    def __init__(self):
        self.refs = {}
        # The end of a `Held` may come inside of `add`.
        self.lock = threading.RLock()

    def keys(self):
        with self.lock:
            return list(self.refs)

    def add(self, held):
        key = held.key
        ref = weakref.ref(held, lambda ref: self.remove(key, ref))
        with self.lock:
            self.refs[key] = [*self.refs.get(key, ()), ref]

    def remove(self, key, ref):
        with self.lock:
            left = [other for other in self.refs.get(key, ()) if other is not ref]
            if left:
                self.refs[key] = left
            else:
                self.refs.pop(key, None)

    def future(self, key):
        """That of the newest; None if there is none."""
        for ref in reversed(self.refs.get(key, ())):
            held = ref()
            if held is not None:
                return held.future
        return None


# By client.
_registries: "weakref.WeakKeyDictionary" = weakref.WeakKeyDictionary()
_registries_lock = threading.Lock()


class UnknownKey(KeyError):
    """A graph refers to a key that is not in it, and that its client has not persisted."""

    def __str__(self):
        text = (
            "the key %r is not in the graph, and this client holds no collection with it: it was "
            "persisted by another client, or its collection is gone"
        )
        return text % (self.args[0],)


class StarlingClient:
    """A scheduler: `dask.config.set(scheduler=StarlingClient())`.

    Without a client it takes the open one, else that of the default directory, else a new local
    cluster. `options` are those of `Client.options`, for all calls.
    """

    # Dask asks for it.
    asynchronous = False

    def __init__(self, client=None, **options):
        self._options = Options().changed(options)
        self._chosen = Chosen(client, "StarlingClient(client)")

    @property
    def client(self):
        return self._chosen.client()

    @property
    def _held(self):
        """All schedulers of one client know what it has persisted."""
        client = self.client
        with _registries_lock:
            found = _registries.get(client)
            if found is None:
                found = _registries[client] = _Registry()
        return found

    def get(self, dsk, keys, **_):
        """The values of keys of a graph; nested lists of keys give nested tuples."""
        wanted = _flat(keys)
        calls = self._submit(dsk, wanted)
        found = calls.values(wanted)
        return nested_get(keys, found) if isinstance(keys, list) else found[keys]

    def compute(self, *collections, sync=False, **kwargs):
        """A `Held` for each collection; with `sync` their values."""
        if sync:
            return dask.compute(*collections, scheduler=self.get, **kwargs)
        return dask.compute(*collections, scheduler=self._holder(), **kwargs)

    def persist(self, collections, **kwargs):
        """The same collections with their values computed and kept on the cluster."""
        one = not isinstance(collections, (list, tuple))
        given = (collections,) if one else tuple(collections)
        found = dask.persist(*given, scheduler=self._holder(), **kwargs)
        return found[0] if one else found

    def gather(self, held):
        """The values in a structure of lists, tuples, dicts and `Held`s."""
        if isinstance(held, Held):
            return held.result()
        if isinstance(held, dict):
            return {key: self.gather(part) for key, part in held.items()}
        if isinstance(held, (list, tuple, set)):
            return type(held)(self.gather(part) for part in held)
        return held

    def _holder(self):
        # Not the method: Dask would find `persist` of its object and call that again.
        return functools.partial(self._hold)

    def _hold(self, dsk, keys, **_):
        calls = self._submit(dsk, _flat(keys))
        found = {}
        for key in _flat(keys):
            found[key] = held = Held(key, calls.future(key))
            self._held.add(held)
        return nested_get(keys, found) if isinstance(keys, list) else found[keys]

    def _submit(self, dsk, wanted):
        annotations = _annotations(dsk)
        if hasattr(dsk, "__dask_graph__"):
            dsk = dsk.__dask_graph__()
        dsk = dict(dsk)
        _pickling.ship_modules()
        calls = _Calls(self, annotations)
        for key, value in dsk.items():
            if isinstance(value, Held):
                calls.known[key] = value.future
        graph = convert_legacy_graph(dsk, {*dsk, *self._held.keys()})
        for key in calls.known:
            graph.pop(key, None)
        graph = cull(graph, set(wanted))
        priorities = order(graph)
        left = _uses(graph, wanted)
        for key in sorted(graph, key=priorities.__getitem__):
            calls.add(key, graph[key])
            calls.drop_read(graph[key], left)
        return calls


class _Calls:
    """The calls of one graph."""

    def __init__(self, owner, annotations):
        self.owner, self.client = owner, owner.client
        self.annotations = annotations
        # Futures, and small values as they are, by key.
        self.known = {}
        self.plain = {}
        self.all = weakref.WeakSet()
        self.functions = {}

    def add(self, key, node):
        if isinstance(node, Alias):
            self._alias(key, node.target)
        elif isinstance(node, DataNode):
            self._data(key, node.value)
        else:
            self._call(key, node)

    def _alias(self, key, target):
        if target in self.plain:
            self.plain[key] = self.plain[target]
        else:
            self.known[key] = self._external(target)

    def _external(self, key):
        """The future of a key; of an earlier graph if this one has none."""
        found = self.known.get(key)
        if found is None:
            found = self.owner._held.future(key)
        if found is None:
            raise UnknownKey(key)
        return found

    def _data(self, key, value):
        with _pickling.Slots() as slots:
            try:
                data = _pickling.dumps(value)
            except Exception as error:
                raise _pickling.explained(error, value, "graph[%r]" % (key,)) from error
        if slots.numbers:
            # Futures in it become their values on the cluster.
            self.known[key] = self._submitted(self._options(key), _same, (value,))
        elif len(data) <= SMALL:
            self.plain[key] = value
        else:
            self.known[key] = _values.put_bytes(self.client, data)

    def _call(self, key, task):
        options = self._options(key)
        # One argument, which is a put if the arguments are large.
        plain = {k: self.plain[k] for k in task.dependencies if k in self.plain}
        keys = tuple(k for k in task.dependencies if k not in plain)
        values = [self._external(k) for k in keys]
        fn = _execute
        if len(values) > INPUTS_MAX:
            fn = _execute_lists
            parts = range(0, len(values), INPUTS_MAX)
            values = [
                self._submitted(options, _listed, values[at : at + INPUTS_MAX]) for at in parts
            ]
        self.known[key] = self._submitted(options, fn, (task, plain, keys, *values))

    def _submitted(self, options, fn, args):
        kind = fn, options.retry_on, options.isolate, options.retries
        function = self.functions.get(kind)
        if function is None:
            function = self.functions[kind] = _pickling.function_bytes(options.wrapped(fn))
        future = self.client._call(options, function, fn, tuple(args), {})
        self.all.add(future)
        return future

    def _options(self, key):
        more = self.annotations.get(key, {})
        return self.owner._options.changed({"name": key_split(key), **more})

    def drop_read(self, node, left):
        """Results that no later call reads and no one asked for are not held any longer."""
        for key in node.dependencies:
            left[key] -= 1
            if left[key] == 0:
                self.known.pop(key, None)
                self.plain.pop(key, None)

    def future(self, key):
        return self.client.put(self.plain[key]) if key in self.plain else self._external(key)

    def values(self, wanted):
        futures = {key: self._external(key) for key in wanted if key not in self.plain}
        pending = set(futures.values())
        first = concurrent.futures.FIRST_EXCEPTION
        try:
            concurrent.futures.wait(pending, return_when=first)
            for future in futures.values():
                if future.done() and (future.cancelled() or future.exception() is not None):
                    _value(future)
            found = {key: _value(future) for key, future in futures.items()}
        except BaseException:
            self.client._cancel_all(self.all)
            raise
        return {**found, **{key: self.plain[key] for key in wanted if key in self.plain}}


def _value(future, timeout=None):
    """As Dask expects it: the error of the call that failed, not of one that waited for it."""
    try:
        return future.result(timeout)
    except DependencyError as error:
        raise error.__cause__ or error


def _flat(keys):
    if not isinstance(keys, list):
        return [keys]
    return [key for part in keys for key in _flat(part)]


def _uses(graph, wanted):
    """How many nodes read each key; wanted keys count once more."""
    left = dict.fromkeys(wanted, 1)
    for node in graph.values():
        for key in node.dependencies:
            left[key] = left.get(key, 0) + 1
    return left


def _annotations(dsk):
    """Options by key, from `dask.annotate(retries=, priority=, resources=, …)`."""
    found = {}
    if hasattr(dsk, "__dask_annotations__"):
        for name, values in dsk.__dask_annotations__().items():
            for key, value in values.items():
                found.setdefault(key, {})[name] = value
    for layer in getattr(dsk, "layers", {}).values():
        for name, value in (layer.annotations or {}).items():
            for key in layer.get_output_keys():
                found.setdefault(key, {})[name] = value(key) if callable(value) else value
    chosen = {key: _options_of(given) for key, given in found.items()}
    return {key: options for key, options in chosen.items() if options}


_OF_ANNOTATIONS = ("cpus", "memory", "gpus", "labels", "priority", "retries", "time_limit")


def _options_of(annotations):
    given = {name.lower(): value for name, value in annotations.items()}
    resources = {}
    for name, value in (given.pop("resources", None) or {}).items():
        # In `distributed` the usual names are GPU and MEMORY.
        option = {"gpu": "gpus", "cpu": "cpus"}.get(name.lower(), name.lower())
        if option in ("cpus", "memory", "gpus"):
            given[option] = value
        else:
            resources[name] = value
    options = {name: given[name] for name in _OF_ANNOTATIONS if given.get(name) is not None}
    return {**options, "resources": resources} if resources else options


@functools.cache
def _default():
    return StarlingClient()


def get(dsk, keys, **kwargs):
    """The scheduler of the open client: `x.compute(scheduler=starling.dask.get)`."""
    return _default().get(dsk, keys, **kwargs)

"""Calls as bytes: functions, arguments with futures in them, and the path to a failing part."""

import concurrent.futures
import hashlib
import io
import os
import pickle
import sys
import threading

from . import _cloudpickle, _imports
from ._errors import CannotPickle
from ._worker import modules
from ._worker.context import slot
from ._worker.nested import here

_submission = threading.local()
_by_value = {"modules": 0, "names": ()}
_shipped: "list[bytes]" = []
# By the digest of a function: the modules that it imports when it runs.
_lazy: "dict[bytes, tuple[str, ...]]" = {}
WALK_MAX = 10_000
# The parts below are not looked at: each level pickles its parts again.
DEPTH_MAX = 64
INSTALLED = ("site-packages", "dist-packages", os.sep + "lib" + os.sep + "python3")


class Slots:
    """The futures in the arguments of the submission under way, in the order of their slots."""

    def __init__(self):
        self.numbers = {}

    def number(self, future):
        return self.numbers.setdefault(future, len(self.numbers))

    def __enter__(self):
        self.outer = getattr(_submission, "slots", None)
        _submission.slots = self
        return self

    def __exit__(self, *_):
        _submission.slots = self.outer


def reduce_future(future):
    """Futures pickle as the slot of their value, but only in the arguments of a submission."""
    slots = getattr(_submission, "slots", None)
    if slots is None:
        raise TypeError("a future can be pickled only as part of the arguments of a call")
    return slot, (slots.number(future),)


def ship(name):
    """Functions of this module of the package travel by value.

    Workers do not have it, or that of another version, since each node carries its own.
    """
    _cloudpickle.register_pickle_by_value(sys.modules[name])
    _shipped.append(name.encode())
    _by_value["modules"] = 0


def is_installed(file):
    return any(part in file for part in INSTALLED)


def script_folder():
    """The folder of the script; the current one for a notebook, and for a tool such as pytest."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    if not script:
        return os.getcwd()
    folder = os.path.dirname(os.path.abspath(script))
    is_tool = is_installed(script) or folder == os.path.join(sys.prefix, "bin")
    return os.getcwd() if is_tool else folder


def is_beside(file, folder=None):
    """Whether a file is in the folder of the script or below, and belongs to no installed package."""
    return file.startswith((folder or script_folder()) + os.sep) and not is_installed(file)


def is_by_value(module):
    """Whether functions of a module travel by value."""
    if module is None:
        return True
    is_name = isinstance(module, str)
    return is_name and (module.encode() in _by_value["names"] or module not in sys.modules)


def ship_modules():
    """Functions of modules beside the script travel by value: workers may not have the files."""
    if len(sys.modules) == _by_value["modules"]:
        return
    if here() is not None:
        # In a call, what came by value has no module, and goes by value again.
        came = [name for name in modules.names() if name in sys.modules]
        for name in came:
            _cloudpickle.register_pickle_by_value(sys.modules[name])
        _by_value["names"] = (b"__main__", *_shipped, *(name.encode() for name in came))
        return
    folder = script_folder()
    own = __name__.partition(".")[0]
    names = [b"__main__", *_shipped]
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name == "__main__" or not file or name.partition(".")[0] == own:
            continue
        if file.endswith(".py") and is_beside(os.path.abspath(file), folder):
            _cloudpickle.register_pickle_by_value(module)
            names.append(name.encode())
    _by_value["names"] = tuple(names)
    _by_value["modules"] = len(sys.modules)


def dumps(obj):
    """The pickle of an object, by value where a worker could not follow a reference."""
    try:
        data = pickle.dumps(obj, 5)
    except Exception:
        return _cloudpickle.dumps(obj, 5)
    if any(name in data for name in _by_value["names"]):
        return _cloudpickle.dumps(obj, 5)
    return data


def function_bytes(function):
    """The bytes of a function for Python workers, as docs/worker-protocol.md has them.

    None for a function that refers to futures: it has to be an argument.
    """
    ship_modules()
    data, has_futures = _function_pickle(function, function)
    if has_futures:
        return None
    key = digest(data)
    names = _lazy.get(key)
    if names is None:
        if len(_lazy) >= 4096:
            _lazy.clear()
        names = _lazy[key] = _imports.imported(function)
    # The files may have changed since.
    carried = _imports.sources(names) if names else None
    if carried:
        data, _ = _function_pickle(modules.Carried(carried, function), function)
    return bytes(sys.version_info[:2]) + data


def _function_pickle(pickled, function):
    """The bytes of the pair that workers unpickle, and whether futures are in it."""
    with Slots() as slots:
        try:
            return _cloudpickle.dumps((pickled, None), 5), bool(slots.numbers)
        except Exception as error:
            raise explained(error, function, "function") from error


def digest(data):
    return hashlib.sha256(data).digest()[:16]


def call_bytes(args, kwargs):
    """The pickled arguments, and the futures in them by slot."""
    if not args and not kwargs:
        return b"", ()
    ship_modules()
    with Slots() as slots:
        try:
            data = dumps((args, kwargs))
        except Exception as error:
            raise explained(error, (args, kwargs), None) from error
    return data, tuple(slots.numbers)


def explained(error, obj, root):
    """The same failure with the path to the part that cannot be pickled."""
    if root is None:
        args, kwargs = obj
        parts = [("args[%d]" % k, arg) for k, arg in enumerate(args)]
        parts += [("kwargs[%r]" % key, arg) for key, arg in kwargs.items()]
    else:
        parts = [(root, obj)]
    found = None
    # A result and a value have no futures in them.
    fails = _fails if root in (None, "function") else _fails_alone
    for path, part in parts:
        found = _failing(part, path, [WALK_MAX], set(), fails)
        if found is not None:
            break
    path, part = found or ("", None)
    if path.count("[") >= DEPTH_MAX:
        # Of no use: the whole is too deep.
        path, part = next((name, part) for name, part in parts if path.startswith(name))
    where = " at %s (a %s)" % (path, type(part).__qualname__) if path else ""
    return CannotPickle("cannot be pickled%s: %s" % (where, error), path or None)


def _fails(obj):
    with Slots():
        return _fails_alone(obj)


def _fails_alone(obj):
    try:
        _cloudpickle.CloudPickler(io.BytesIO(), 5).dump(obj)
        return False
    except Exception:
        return True


def _failing(obj, path, left, seen, fails, depth=0):
    """(path, object) of the deepest part that cannot be pickled; None if `obj` can be."""
    left[0] -= 1
    if left[0] < 0 or id(obj) in seen or not fails(obj):
        return None
    seen.add(id(obj))
    for name, part in _parts(obj) if depth < DEPTH_MAX else ():
        found = _failing(part, path + name, left, seen, fails, depth + 1)
        if found is not None:
            return found
    return path, obj


def _parts(obj):
    if isinstance(obj, concurrent.futures.Future):
        return []
    if isinstance(obj, dict):
        return [("[%r]" % (key,), part) for key, part in obj.items()]
    if isinstance(obj, (list, tuple)):
        return [("[%d]" % k, part) for k, part in enumerate(obj)]
    found = []
    closure = getattr(obj, "__closure__", None)
    code = getattr(obj, "__code__", None)
    if code is not None:
        cells = zip(code.co_freevars, closure or ())
        found += [("<closure %s>" % name, cell.cell_contents) for name, cell in cells]
        names = obj.__globals__
        found += [("<global %s>" % n, names[n]) for n in code.co_names if n in names]
    state = getattr(obj, "__dict__", None)
    if isinstance(state, dict) and not isinstance(obj, type):
        found += [("." + name, part) for name, part in state.items()]
    for name in getattr(type(obj), "__slots__", ()):
        if isinstance(name, str) and hasattr(obj, name):
            found.append(("." + name, getattr(obj, name)))
    return found

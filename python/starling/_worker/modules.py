"""Modules that travel with functions, as their sources."""

import importlib.abc
import importlib.util
import sys

# By name: whether it is a package, its file where it was submitted, its source.
_known: "dict[str, tuple[bool, str, str]]" = {}


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules that came with a function, before those of this machine."""

    def find_spec(self, name, path=None, target=None):
        found = _known.get(name)
        if found is None:
            return None
        is_package, file, _ = found
        return importlib.util.spec_from_loader(name, self, origin=file, is_package=is_package)

    def exec_module(self, module):
        _, file, source = _known[module.__name__]
        module.__file__ = file
        exec(compile(source, file, "exec", dont_inherit=True), module.__dict__)

    def get_source(self, name):
        """For the lines of tracebacks."""
        return _known[name][2]


_finder = Finder()


class Carried:
    """A function with modules that it imports when it runs."""

    __slots__ = ("modules", "fn")

    def __init__(self, modules, fn):
        self.modules, self.fn = modules, fn

    def ready(self):
        """The function, after its modules can be imported here."""
        install(self.modules)
        return self.fn

    def __call__(self, /, *args, **kwargs):
        return self.ready()(*args, **kwargs)

    def __reduce__(self):
        return Carried, (self.modules, self.fn)


def install(modules):
    """If a module has changed, all that came are loaded again: any of them may refer to it."""
    changed = [name for name, entry in modules.items() if _known.get(name) != entry]
    if not changed:
        return
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    has_changed = any(name in _known for name in changed)
    _known.update((name, modules[name]) for name in changed)
    for name in list(_known) if has_changed else changed:
        sys.modules.pop(name, None)


def names():
    return list(_known)


def carried(top):
    """What has come here of a module or a package, by name."""
    return {
        name: entry for name, entry in _known.items() if name == top or name.startswith(top + ".")
    }

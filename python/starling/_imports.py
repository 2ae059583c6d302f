"""The modules beside the script that a function imports when it runs. They travel with it."""

import ast
import dis
import functools
import importlib.util
import os
import pathlib
import types

from . import _pickling
from ._worker import modules

# Of one function. A function with more gets none, and an import there fails with a note.
FILES_MAX = 256
BYTES_MAX = 1 << 20
OBJECTS_MAX = 10_000

# By file: its time and size, its source, and the modules that it imports.
_read: "dict[str, tuple]" = {}


def of_function(function):
    """The entries of `Carried` for a function that travels by value."""
    return sources(imported(function))


def sources(names):
    """The sources of these modules, as far as they are beside the script, and of what they import."""
    # Each worker has this package.
    found, waiting, seen = {}, list(names), {__name__.partition(".")[0]}
    while waiting:
        top = waiting.pop().partition(".")[0]
        if top in seen:
            continue
        seen.add(top)
        try:
            entries = _entries(top)
        except (OSError, SyntaxError, ValueError):
            continue
        for name, (entry, imports) in entries.items():
            found[name] = entry
            waiting.extend(imports)
        size = sum(len(source) for _, _, source in found.values())
        if len(found) > FILES_MAX or size > BYTES_MAX:
            return {}
    return found


def _entries(top):
    """By module: its entry, and the modules that it imports."""
    came = modules.carried(top)
    if came:
        # In a call: it goes on as it came.
        return {name: (entry, ()) for name, entry in came.items()}
    spec = importlib.util.find_spec(top)
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        return {}
    origin = os.path.abspath(spec.origin)
    if not _pickling.is_beside(origin):
        return {}
    if not spec.submodule_search_locations:
        return {top: _source(False, origin)}
    folder = pathlib.Path(origin).parent
    found = {}
    for path in sorted(folder.rglob("*.py"))[: FILES_MAX + 1]:
        parts = [top, *path.relative_to(folder).with_suffix("").parts]
        is_package = parts[-1] == "__init__"
        found[".".join(parts[:-1] if is_package else parts)] = _source(is_package, str(path))
    return found


def _source(is_package, file):
    state = os.stat(file)
    key = state.st_mtime_ns, state.st_size
    known = _read.get(file)
    if known is None or known[0] != key:
        if state.st_size > BYTES_MAX:
            raise ValueError("%s is too large" % file)
        with open(file, "rb") as opened:
            source = importlib.util.decode_source(opened.read())
        if len(_read) >= 4096:
            _read.clear()
        known = _read[file] = key, source, _of_source(source)
    return (is_package, file, known[1]), known[2]


def _of_source(source):
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found.add(node.module)
    return tuple(sorted(found))


def imported(function):
    """The modules that import statements in a function name, and in what travels by value with it."""
    found, waiting, seen = set(), [function], set()
    while waiting and len(seen) < OBJECTS_MAX:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, types.FunctionType):
            if _pickling.is_by_value(part.__module__):
                _of_code(part.__code__, part.__globals__, found)
                waiting.extend(_referred(part))
        elif isinstance(part, types.MethodType):
            waiting += [part.__func__, type(part.__self__)]
        elif isinstance(part, functools.partial):
            waiting += [part.func, *part.args, *part.keywords.values()]
        elif isinstance(part, (staticmethod, classmethod)):
            waiting.append(part.__func__)
        elif isinstance(part, property):
            waiting += [part.fget, part.fset]
        elif isinstance(part, types.ModuleType):
            if _pickling.is_by_value(part.__name__):
                waiting.extend(list(vars(part).values()))
        elif isinstance(part, type):
            if _pickling.is_by_value(part.__module__):
                waiting += [*vars(part).values(), *part.__bases__]
        elif _pickling.is_by_value(type(part).__module__):
            waiting.append(type(part))
            waiting.extend(getattr(part, "__dict__", {}).values())
    return tuple(sorted(found))


def _referred(function):
    """What a function refers to: its closure, its globals, what it wraps."""
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:
            # It has no value yet.
            continue
    yield getattr(function, "__wrapped__", None)
    waiting = [function.__code__]
    while waiting:
        code = waiting.pop()
        waiting += [const for const in code.co_consts if isinstance(const, types.CodeType)]
        for name in code.co_names:
            if name in function.__globals__:
                yield function.__globals__[name]


def _of_code(code, names, found):
    before = [0, 0]
    for step in dis.get_instructions(code):
        if step.opname == "IMPORT_NAME":
            level = before[0]
            found.add(step.argval if not level else _absolute(step.argval, level, names))
        before = [before[1], step.argval]
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            _of_code(const, names, found)


def _absolute(name, level, names):
    try:
        return importlib.util.resolve_name("." * level + name, names.get("__package__"))
    except (ImportError, TypeError):
        return name or "__main__"

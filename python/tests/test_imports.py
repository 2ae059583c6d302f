"""Modules beside the script that functions import when they run."""

import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

from . import node  # noqa: F401 (it sets the path)
from .worker_core import Core

import starling
from starling import _imports, _pickling


def imports_beside(x):
    import lazy_beside

    return lazy_beside.k(x)


def imports_in_part(x):
    def inner():
        from lazy_package.deep import z

        return z(x)

    return inner()


def imports_nothing_beside():
    import json
    import no_such_module_x

    return json, no_such_module_x


def refers_to_one_that_imports(x):
    return imports_beside(x) + 1


def is_lazy():
    return "lazy_beside" in sys.modules


class Imports(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name).resolve()
        self.write("lazy_beside.py", "import lazy_other\ndef k(x): return x + lazy_other.MORE\n")
        self.write("lazy_other.py", "MORE = 1000\n")
        (self.folder / "lazy_package").mkdir()
        self.write("lazy_package/__init__.py", "")
        self.write("lazy_package/deep.py", "from .more import z\n")
        self.write("lazy_package/more.py", "def z(x): return -x\n")
        for changed in (
            mock.patch.object(_pickling, "script_folder", lambda: str(self.folder)),
            mock.patch.object(sys, "path", [str(self.folder), *sys.path]),
            # As functions of a script.
            mock.patch.dict(_pickling._by_value, {"names": (b"__main__", __name__.encode())}),
            mock.patch.object(_pickling, "ship_modules", lambda: None),
        ):
            changed.start()
            self.addCleanup(changed.stop)
        _pickling._cloudpickle.register_pickle_by_value(sys.modules[__name__])
        self.addCleanup(_pickling._cloudpickle.unregister_pickle_by_value, sys.modules[__name__])

    def write(self, name, text):
        (self.folder / name).write_text(text)

    def client(self, **options):
        client = starling.Client(name="test", _core=Core(**options))
        self.addCleanup(client.close)
        return client

    def test_what_a_function_imports(self):
        self.assertEqual(_imports.imported(imports_beside), ("lazy_beside",))
        self.assertEqual(_imports.imported(refers_to_one_that_imports), ("lazy_beside",))
        self.assertEqual(_imports.imported(imports_in_part), ("lazy_package.deep",))
        found = _imports.of_function(imports_in_part)
        self.assertEqual(sorted(found), ["lazy_package", "lazy_package.deep", "lazy_package.more"])
        self.assertEqual(sorted(_imports.of_function(imports_beside)), ["lazy_beside", "lazy_other"])
        self.assertEqual(_imports.of_function(imports_nothing_beside), {})

    def test_this_package_stays(self):
        with mock.patch.object(_pickling, "script_folder", lambda: str(node.ROOT / "python")):
            self.assertEqual(_imports.sources(["starling._worker"]), {})

    def test_too_much_stays(self):
        self.write("lazy_other.py", "MORE = 1000\n" + "# much\n" * 200_000)
        self.assertEqual(list(_imports.of_function(imports_beside)), ["lazy_beside"])

    def test_a_worker_imports_them(self):
        client = self.client(workers=1)
        self.assertEqual(client.submit(imports_beside, 1).result(60), 1001)
        self.assertEqual(client.submit(refers_to_one_that_imports, 1).result(60), 1002)
        self.assertEqual(client.submit(imports_in_part, 5).result(60), -5)
        self.assertTrue(client.submit(is_lazy).result(60), "it stays loaded")
        # A changed module is another function, also in a worker that has loaded the former.
        self.write("lazy_other.py", "MORE = 2000\n")
        os.utime(self.folder / "lazy_other.py", ns=(1, 1))
        self.assertEqual(client.submit(imports_beside, 1).result(60), 2001)
        self.assertNotIn("lazy_beside", sys.modules)

    def test_a_missing_module_is_named_with_its_node(self):
        future = self.client(workers=1).submit(imports_nothing_beside)
        with self.assertRaises(ModuleNotFoundError) as caught:
            future.result(60)
        self.assertRegex(caught.exception.__notes__[1], "'no_such_module_x' is missing on n0: install")

    def test_a_trace_has_the_lines_of_the_module(self):
        self.write("lazy_beside.py", "def k(x):\n    return 1 // (x - x)  # here\n")
        with self.assertRaises(ZeroDivisionError) as caught:
            self.client(workers=1).submit(imports_beside, 1).result(60)
        self.assertIn("# here", str(caught.exception.__cause__))

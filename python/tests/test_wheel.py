"""The packing of the wheel, with programs of this machine in the places of its own."""

import base64
import hashlib
import io
import pathlib
import shutil
import subprocess
import sys
import tempfile
import tomllib
import unittest
import zipfile

from . import node

sys.path.append(str(node.ROOT / "python"))
import pack_wheel  # noqa: E402


def project():
    text = (node.ROOT / "python" / "pyproject.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)["project"]


def program():
    """An ELF file that needs nothing but the C library, and the libraries that it needs."""
    for name in ("true", "cat", "sh"):
        found = shutil.which(name)
        data = pathlib.Path(found).read_bytes() if found else b""
        try:
            libraries, _ = pack_wheel.elf_needs(data)
        except pack_wheel.NoElf:
            continue
        if all(library.startswith(("libc.", "ld-")) for library in libraries) and libraries:
            return data
    raise unittest.SkipTest("no small ELF program on this machine")


class Tags(unittest.TestCase):
    def tag(self, libraries, versions):
        before = pack_wheel.elf_needs
        pack_wheel.elf_needs = lambda _: (set(libraries), set(versions))
        try:
            return pack_wheel.platform_tag([b""], "x86_64")
        finally:
            pack_wheel.elf_needs = before

    def test_the_oldest_system(self):
        for libraries, versions, expected in (
            (["libc.so.6"], ["GLIBC_2.2.5"], "manylinux_2_17_x86_64"),
            (["libc.so.6", "libgcc_s.so.1"], ["GLIBC_2.34", "GCC_3.0"], "manylinux_2_34_x86_64"),
            (["libstdc++.so.6"], ["GLIBC_2.17", "GLIBCXX_3.4.30"], "manylinux_2_35_x86_64"),
            (["libstdc++.so.6"], ["GLIBC_2.36", "GLIBCXX_3.4.30"], "manylinux_2_36_x86_64"),
            (["libstdc++.so.6"], ["GLIBCXX_3.4.99"], "linux_x86_64"),
            (["libc.so.6", "libzstd.so.1"], ["GLIBC_2.17"], "linux_x86_64"),
        ):
            self.assertEqual(self.tag(libraries, versions), expected)

    def test_what_a_program_needs(self):
        libraries, versions = pack_wheel.elf_needs(program())
        self.assertIn("libc.so.6", libraries)
        self.assertTrue(any(version.startswith("GLIBC_2.") for version in versions))
        for wrong in (b"", b"#!/bin/sh\n", b"\x7fELF\x01\x01" + bytes(100)):
            with self.assertRaises(pack_wheel.NoElf):
                pack_wheel.elf_needs(wrong)


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.program = program()
        cls.name, cls.data = pack_wheel.wheel(project(), cls.program, cls.program)
        cls.archive = zipfile.ZipFile(io.BytesIO(cls.data))

    def test_the_name(self):
        parts = self.name.removesuffix(".whl").split("-")
        self.assertEqual(parts[:4], ["starling_flock", project()["version"], "cp311", "abi3"])
        self.assertRegex(parts[4], "^(many)?linux_")

    def test_the_same_files_give_the_same_bytes(self):
        self.assertEqual(pack_wheel.wheel(project(), self.program, self.program)[1], self.data)
        self.assertIsNone(self.archive.testzip())
        self.assertEqual({entry.date_time[0] for entry in self.archive.infolist()}, {1980})

    def test_the_record(self):
        stem = "-".join(self.name.split("-")[:2])
        rows = self.archive.read(stem + ".dist-info/RECORD").decode().splitlines()
        listed = {}
        for row in rows:
            name, digest, size = row.split(",")
            listed[name] = digest, size
        self.assertEqual(set(listed), set(self.archive.namelist()))
        self.assertEqual(listed.pop(stem + ".dist-info/RECORD"), ("", ""))
        for name, (digest, size) in listed.items():
            data = self.archive.read(name)
            found = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            self.assertEqual((digest, int(size)), ("sha256=" + found, len(data)), name)

    def test_what_is_in_it(self):
        names = self.archive.namelist()
        for name in (
            "starling/__init__.py",
            "starling/_core.abi3.so",
            "starling/_core.pyi",
            "starling/py.typed",
            "starling/dask.py",
            "snakemake_executor_plugin_starling/__init__.py",
            "snakemake_storage_plugin_starling/__init__.py",
        ):
            self.assertIn(name, names)
        ends = ("/scripts/starling", "/licenses/LICENSE", "/METADATA", "/WHEEL")
        for end in ends:
            self.assertEqual(sum(name.endswith(end) for name in names), 1, end)
        self.assertFalse([name for name in names if "test" in name or "pack_" in name])
        without, _ = pack_wheel.wheel(project(), self.program, None)
        self.assertTrue(without.startswith("starling_flock"))

    def test_pip_installs_it(self):
        folder = tempfile.TemporaryDirectory(prefix="starling-wheel-")
        self.addCleanup(folder.cleanup)
        place = pathlib.Path(folder.name)
        (place / self.name).write_bytes(self.data)
        made = subprocess.run([sys.executable, "-m", "venv", place / "venv"], capture_output=True)
        if made.returncode:
            self.skipTest("no environment can be made: %s" % made.stderr.decode()[-200:])
        python = place / "venv" / "bin" / "python"
        install = [python, "-m", "pip", "install", "--no-deps", "--no-index", place / self.name]
        done = subprocess.run(install, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        script = (
            "import starling, starling._cluster as c, importlib.metadata as m;"
            "print(c.find_binary()); print(m.version('starling-flock'))"
        )
        env = {"PATH": "/usr/bin:/bin"}
        command = [python, "-I", "-c", script]
        shown = subprocess.run(command, capture_output=True, text=True, env=env)
        self.assertEqual(shown.returncode, 0, shown.stderr)
        binary, version = shown.stdout.split()
        self.assertEqual(pathlib.Path(binary), place / "venv" / "bin" / "starling")
        self.assertEqual(version, project()["version"])
        self.assertEqual(pathlib.Path(binary).read_bytes(), self.program)


if __name__ == "__main__":
    unittest.main()

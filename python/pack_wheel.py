#!/usr/bin/env python3
"""Packs the wheel: the package, its extension module, and the program `starling`.

The same files give the same bytes. It needs nothing but Python 3.11 or later.
"""

import argparse
import base64
import hashlib
import io
import pathlib
import platform
import shutil
import struct
import subprocess
import sys
import tempfile
import tomllib
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
PACKAGES = (
    "starling",
    "snakemake_executor_plugin_starling",
    "snakemake_storage_plugin_starling",
)
SUFFIXES = (".py", ".pyi", ".typed", ".md")
# What every manylinux system has (PEP 600 and the list of auditwheel).
SYSTEM_LIBRARIES = ("libc", "libm", "libdl", "librt", "libpthread", "libresolv", "libutil",
                    "libgcc_s", "libstdc++", "ld-linux-x86-64", "ld-linux-aarch64")  # fmt: skip
# The newest GLIBCXX_3.4.N of systems by the minor number of their glibc 2.N.
GLIBCXX = ((17, 19), (24, 22), (28, 24), (31, 28), (34, 29), (35, 30), (38, 32), (39, 33))
STABLE_DATE = (1980, 1, 1, 0, 0, 0)


class NoElf(Exception):
    """The file is no 64-bit little-endian ELF file with a dynamic section."""


def elf_needs(data):
    """(libraries, versions) that an ELF file needs, such as "libc.so.6" and "GLIBC_2.17"."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise NoElf("no 64-bit little-endian ELF file")
    (offset,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, offset + size * k) for k in range(count)]
    libraries, versions = set(), set()
    for _, kind, _, _, at, length, link, info, _, _ in sections:
        if kind == 6:  # SHT_DYNAMIC
            for entry in range(at, at + length, 16):
                tag, value = struct.unpack_from("<qQ", data, entry)
                if tag == 1:  # DT_NEEDED
                    libraries.add(_text(data, sections[link][4] + value))
        elif kind == 0x6FFFFFFE:  # SHT_GNU_verneed
            versions |= _needed_versions(data, at, info, sections[link][4])
    return libraries, versions


def _needed_versions(data, at, count, strings):
    found = set()
    for _ in range(count):
        _, names, _, first, after = struct.unpack_from("<HHIII", data, at)
        entry = at + first
        for _ in range(names):
            _, _, _, name, following = struct.unpack_from("<IHHII", data, entry)
            found.add(_text(data, strings + name))
            entry += following
        at += after
    return found


def _text(data, at):
    return data[at : data.index(b"\0", at)].decode()


def platform_tag(files, machine=None):
    """The oldest manylinux tag on which all the files run, else `linux_MACHINE`."""
    machine = machine or platform.machine()
    minor, cxx = 17, 0
    for data in files:
        libraries, versions = elf_needs(data)
        if any(name.partition(".so")[0] not in SYSTEM_LIBRARIES for name in libraries):
            return "linux_" + machine
        for version in versions:
            family, _, number = version.partition("_")
            parts = number.split(".")
            if family == "GLIBC" and parts[0] == "2":
                minor = max(minor, int(parts[1]))
            elif family == "GLIBCXX" and len(parts) == 3:
                cxx = max(cxx, int(parts[2]))
    for least, newest in GLIBCXX:
        if newest >= cxx:
            return "manylinux_2_%d_%s" % (max(minor, least), machine)
    return "linux_" + machine


def stripped(path):
    """The bytes of a program without the information for debuggers, where `strip` is installed."""
    if shutil.which("strip") is None:
        return path.read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder, path.name)
        subprocess.run(["strip", "--strip-debug", "-o", str(copy), str(path)], check=True)
        return copy.read_bytes()


def metadata(project):
    lines = [
        "Metadata-Version: 2.4",
        "Name: " + project["name"],
        "Version: " + project["version"],
        "Summary: " + project["description"],
        "License-Expression: " + project["license"],
        "License-File: LICENSE",
        "License-File: LICENSE-cloudpickle",
        "Requires-Python: " + project["requires-python"],
        *("Classifier: " + text for text in project["classifiers"]),
    ]
    for extra, needed in sorted(project.get("optional-dependencies", {}).items()):
        lines.append("Provides-Extra: " + extra)
        lines += ['Requires-Dist: %s; extra == "%s"' % (name, extra) for name in needed]
    return "\n".join(lines) + "\n"


def package_files():
    for name in PACKAGES:
        for path in sorted((HERE / name).rglob("*")):
            if path.suffix in SUFFIXES and path.is_file():
                yield path.relative_to(HERE).as_posix(), path.read_bytes()


def wheel(project, extension, binary):
    """(file name, bytes) of the wheel. `binary` may be None: a wheel without the program."""
    stem = "%s-%s" % (project["name"].replace("-", "_"), project["version"])
    native = [extension] + ([binary] if binary is not None else [])
    tag = "cp311-abi3-" + platform_tag(native)
    info = stem + ".dist-info/"
    files = dict(package_files())
    files["starling/_core.abi3.so"] = extension
    if binary is not None:
        files[stem + ".data/scripts/starling"] = binary
    licenses = HERE.parent / "LICENSE", HERE / "starling" / "_cloudpickle" / "LICENSE"
    files[info + "licenses/LICENSE"] = licenses[0].read_bytes()
    files[info + "licenses/LICENSE-cloudpickle"] = licenses[1].read_bytes()
    files[info + "METADATA"] = metadata(project).encode()
    head = "Wheel-Version: 1.0\nGenerator: starling\nRoot-Is-Purelib: false\nTag: %s\n" % tag
    files[info + "WHEEL"] = head.encode()
    files[info + "RECORD"] = record(files, info + "RECORD")
    return "%s-%s.whl" % (stem, tag), archive(files)


def record(files, own):
    rows = []
    for name, data in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append("%s,sha256=%s,%d\n" % (name, digest, len(data)))
    return ("".join(rows) + own + ",,\n").encode()


def archive(files):
    """A zip. Its bytes depend on the names and bytes of the files alone. Metadata is last."""
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as target:
        for name in sorted(files, key=lambda name: (".dist-info/" in name, name)):
            entry = zipfile.ZipInfo(name, STABLE_DATE)
            runs = "/scripts/" in name or name.endswith(".so")
            entry.external_attr = (0o100755 if runs else 0o100644) << 16
            entry.create_system = 3
            entry.compress_type = zipfile.ZIP_DEFLATED
            target.writestr(entry, files[name])
    return found.getvalue()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--extension", type=pathlib.Path, required=True, help="lib_core.so")
    parser.add_argument("--binary", type=pathlib.Path, help="the program; without: not packed")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="the directory of wheels")
    given = parser.parse_args()
    project = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    binary = stripped(given.binary) if given.binary is not None else None
    try:
        name, data = wheel(project, stripped(given.extension), binary)
    except (NoElf, OSError, subprocess.CalledProcessError) as error:
        sys.exit("the wheel cannot be packed: %s" % error)
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / name).write_bytes(data)
    print(given.out / name)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Packs worker.zip: the same files give the same bytes. `--check` compares and writes nothing."""

import io
import pathlib
import sys
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
TARGET = HERE / "worker.zip"
# Their functions for workers travel by value.
ADAPTERS = (
    "bench.py",
    "dask.py",
    "env.py",
    "executorlib.py",
    "joblib.py",
    "parsl.py",
    "wfbench.py",
)
MAIN = "import sys\n\nfrom starling._worker.main import main\n\nsys.exit(main(sys.argv))\n"


def entries():
    package = HERE / "starling"
    yield "__main__.py", MAIN.encode()
    for folder in (".", "_cloudpickle", "_worker"):
        for path in sorted((package / folder).iterdir()):
            is_adapter = folder == "." and path.name in ADAPTERS
            if (path.suffix == ".py" and not is_adapter) or path.name == "LICENSE":
                yield f"starling/{path.relative_to(package)}", path.read_bytes()


def packed():
    """The bytes of the zip."""
    found = io.BytesIO()
    # Stored, because compressed bytes depend on the version of zlib.
    with zipfile.ZipFile(found, "w", zipfile.ZIP_STORED) as archive:
        for name, data in entries():
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.external_attr = 0o644 << 16
            info.create_system = 3
            archive.writestr(info, data)
    return found.getvalue()


def main():
    if "--check" not in sys.argv[1:]:
        TARGET.write_bytes(packed())
    elif not TARGET.is_file() or TARGET.read_bytes() != packed():
        sys.exit(f"{TARGET.name} is not that of the sources; run python/pack_worker.py")


if __name__ == "__main__":
    main()

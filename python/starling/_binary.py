"""Where the `starling` program is."""

import os
import pathlib
import shutil
import sys
import sysconfig

from ._errors import NoBinary


def find_binary():
    """The `starling` program: named by STARLING_BINARY, beside the package, or in PATH."""
    named = os.environ.get("STARLING_BINARY")
    beside = pathlib.Path(__file__).resolve().parent
    # With `pip install`, with `--target`, and with `--user`.
    folders = [beside, pathlib.Path(sys.prefix, "bin"), beside.parent / "bin"]
    folders.append(pathlib.Path(sysconfig.get_path("scripts", "posix_user")))
    places = [named] if named else [folder / "starling" for folder in folders]
    for place in places:
        if os.path.isfile(place) and os.access(place, os.X_OK):
            return str(place)
    found = None if named else shutil.which("starling")
    if found is None:
        looked = ", ".join(str(place) for place in places) + ("" if named else ", PATH")
        raise NoBinary("no starling program (looked at %s); name one in STARLING_BINARY" % looked)
    return found

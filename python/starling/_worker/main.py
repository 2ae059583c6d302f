"""Entry of worker.zip: `PYTHON worker.zip worker` or `PYTHON worker.zip zygote`."""

import os
import sys

# The directory of the worker: one that must be there, or one that may be missing on this node.
CWD = "STARLING_WORKER_CWD"
CWD_IF_THERE = "STARLING_WORKER_CWD_IF_THERE"


def enter_directory():
    must, may = os.environ.pop(CWD, None), os.environ.pop(CWD_IF_THERE, None)
    try:
        if must or may:
            os.chdir(must or may)
    except OSError as error:
        if must:
            sys.stderr.write("the directory of the calls: %s\n" % error)
            sys.stderr.flush()
            os._exit(1)


def main(argv):
    if len(argv) != 2 or argv[1] not in ("worker", "zygote"):
        sys.stderr.write("usage: python worker.zip worker|zygote\n")
        sys.stderr.write("A node starts this with open descriptors; see docs/worker-protocol.md.\n")
        return 2
    if sys.version_info < (3, 8):
        sys.stderr.write("starling workers need Python 3.8 or later\n")
        return 2
    enter_directory()
    from . import worker, zygote

    code = zygote.start() if argv[1] == "zygote" else worker.start(preloaded=False)
    # User code may have left threads; the end does not wait for them.
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        pass
    os._exit(code)

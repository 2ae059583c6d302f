"""Packs an environment for nodes: `python -m starling.env pack DIRECTORY --output FILE`."""

import argparse
import sys

from ._environment import Environment
from ._errors import StarlingError


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m starling.env", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    pack = verbs.add_parser("pack", help="write an archive of a directory")
    pack.add_argument("directory", help="a venv, an environment of conda, or modules")
    pack.add_argument("--output", "-o", required=True, help="the archive, for example env.tar.gz")
    put = verbs.add_parser("put", help="give an environment to a cluster before its first use")
    put.add_argument("path", help="the directory or the archive")
    put.add_argument("--dir", help="the directory of the cluster")
    options = parser.parse_args(argv)
    try:
        if options.verb == "pack":
            environment = Environment(options.directory)
            size = environment.pack(options.output)
            print("%s: %d bytes, content %s" % (options.output, size, environment.digest))
        else:
            from ._client import default_dir

            environment = Environment(options.path)
            environment._put(options.dir or default_dir())
            print("content %s" % environment.digest)
    except (OSError, ValueError, StarlingError) as error:
        print("error: %s" % error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

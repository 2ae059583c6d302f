"""Environments: their names, their archives, and their way to nodes."""

import contextlib
import fcntl
import io
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unittest
from unittest import mock

from . import node  # noqa: F401 (it sets the path)
import starling
from starling import _environment, env
from .test_end_to_end import WAIT, _missing

VERSION = "python%d.%d" % sys.version_info[:2]


def venv(folder, python=sys.executable, version=VERSION):
    """A small venv with one module."""
    root = pathlib.Path(folder)
    modules = root / "lib" / version / "site-packages"
    modules.mkdir(parents=True)
    (modules / "seldom.py").write_text("NUMBER = 41\n")
    (root / "bin").mkdir()
    os.symlink(os.path.realpath(python), root / "bin" / "python")
    home = os.path.dirname(os.path.realpath(python))
    (root / "pyvenv.cfg").write_text("home = %s\ninclude-system-site-packages = false\n" % home)
    return root


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)


class Archives(Folder):
    def test_the_name_is_that_of_the_content(self):
        root = venv(self.folder / "a")
        before = _environment.tree_digest(root)
        module = root / "lib" / VERSION / "site-packages" / "seldom.py"
        os.utime(module, (1, 1))
        (module.parent / "__pycache__").mkdir()
        (module.parent / "__pycache__" / "seldom.pyc").write_text("x")
        self.assertEqual(before, _environment.tree_digest(root))
        self.assertEqual(before, _environment.tree_digest(venv(self.folder / "b")))

        seen = {before}
        changes = (
            lambda: module.write_text("NUMBER = 42\n"),
            lambda: module.chmod(0o755),
            lambda: os.symlink("seldom.py", module.parent / "link.py"),
            lambda: (module.parent / "empty").mkdir(),
        )
        for change in changes:
            change()
            digest = _environment.tree_digest(root)
            self.assertNotIn(digest, seen)
            seen.add(digest)

    def test_pack(self):
        root, archive = venv(self.folder / "a"), self.folder / "a.tar.gz"
        os.mkfifo(root / "pipe")
        said = subprocess.run(
            [sys.executable, "-m", "starling.env", "pack", str(root), "-o", str(archive)],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        self.assertIn(starling.Environment(root).digest, said.stdout)
        with tarfile.open(archive) as packed:
            names = packed.getnames()
            self.assertEqual(packed.getmember("bin/python").linkname, os.path.realpath(sys.executable))
        self.assertIn("lib/%s/site-packages/seldom.py" % VERSION, names)
        self.assertNotIn("pipe", names)
        again = starling.Environment(archive)
        self.assertEqual((again._has_python, "python" + again._version), (True, VERSION))
        with self.assertRaisesRegex(ValueError, "packed already"):
            again.pack(self.folder / "b")

    def test_what_lies_outside_is_named(self):
        root = venv(self.folder / "a")
        modules = root / "lib" / VERSION / "site-packages"
        (modules / "x.pth").write_text("import sys\n/somewhere/else\n%s/lib\n" % root)
        (modules / "y.dist-info").mkdir()
        url = {"url": "file:///src/y", "dir_info": {"editable": True}}
        (modules / "y.dist-info" / "direct_url.json").write_text(json.dumps(url))
        with self.assertWarnsRegex(UserWarning, "not packed: /somewhere/else, /src/y;"):
            starling.Environment(root).pack(self.folder / "a.tar.gz")

    def test_wrong_paths(self):
        with self.assertRaisesRegex(FileNotFoundError, "/nowhere/env"):
            starling.Runtime(environment="/nowhere/env")
        (self.folder / "x").write_text("no archive")
        with self.assertRaisesRegex(ValueError, "no archive of an environment"):
            starling.Runtime(environment=self.folder / "x")
        with self.assertRaisesRegex(TypeError, "has a Python"):
            starling.Runtime("/p", environment=venv(self.folder / "a"))
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            self.assertEqual(env.main(["pack", "/nowhere/env", "-o", "x"]), 1)
        self.assertIn("no environment is at /nowhere/env", said.getvalue())


class Changes(Folder):
    """What is put has the name that it is put with."""

    def refused(self, environment, text):
        with self.assertRaisesRegex(ValueError, text):
            environment._archive(self.folder / "archive")

    def test_a_directory_that_changes_after_its_name_is_known(self):
        root = venv(self.folder / "a")
        environment = starling.Environment(root)
        self.assertTrue(environment.digest)
        (root / "late").write_text("x")
        self.refused(environment, "a has changed since")
        starling.Environment(root)._archive(self.folder / "archive")

    def test_an_archive_that_changes_after_its_name_is_known(self):
        path = self.folder / "a.tar.gz"
        starling.Environment(venv(self.folder / "a")).pack(path)
        environment = starling.Environment(path)
        environment._archive(self.folder / "archive")
        self.assertEqual(_environment._file_digest(self.folder / "archive"), environment.digest)
        path.write_bytes(path.read_bytes() + b"more")
        self.refused(environment, "a.tar.gz has changed since")

    def test_the_limit_of_bytes(self):
        root, path = venv(self.folder / "a"), self.folder / "a.tar.gz"
        starling.Environment(root).pack(path)
        (root / "large").write_bytes(os.urandom(100_000))
        with mock.patch.object(_environment, "PACKED_BYTES_MAX", 100):
            for each in (root, path):
                self.refused(starling.Environment(each), "too large: its archive has more than 100")


class Scripts(Folder):
    """The script of a node, without a node: its parent is this Python, which knows no verbs."""

    def setUp(self):
        super().setUp()
        self.environment = starling.Environment(venv(self.folder / "a"))
        self.state = self.folder / "state" / "environments"
        self.work = self.state / (".new-" + self.environment.digest)

    def fetched(self):
        """As a start leaves it that was too late to unpack."""
        self.work.mkdir(parents=True)
        self.environment.pack(self.work / "archive")
        (self.work / "fetched").touch()

    def start(self, path=None):
        argv = self.environment._argv(sys.executable, "")
        argv[3:] = ["python", "-c", "import seldom; print(seldom.__file__)"]
        variables = {
            **os.environ,
            "STARLING_WORKER_OBJECTS": str(self.folder / "state" / "results"),
            "STARLING_NODE": "7",
            "PATH": (str(path) + ":" if path else "") + os.environ["PATH"],
        }
        done = subprocess.run(argv, env=variables, capture_output=True, text=True, timeout=WAIT)
        return done.returncode, done.stdout + done.stderr

    def test_a_fetched_archive_is_not_fetched_again(self):
        self.fetched()
        code, said = self.start()
        self.assertEqual((code, str(self.state) in said), (0, True), said)
        self.assertFalse(self.work.exists())
        self.assertEqual(self.start(), (code, said))

    def test_the_limit_of_time(self):
        self.fetched()
        tools = self.folder / "tools"
        tools.mkdir()
        (tools / "tar").write_text("#!/bin/sh\nexec sleep 60\n")
        (tools / "tar").chmod(0o755)
        with mock.patch.object(_environment, "START_SECONDS_MAX", 1):
            code, said = self.start(tools)
            self.assertEqual(code, 1)
            self.assertIn("on node n7: it was not unpacked in 1 s", said)
            self.assertTrue((self.work / "fetched").exists())
            lock = self.state / ".locks" / self.environment.digest[:2]
            with open(lock) as held:
                fcntl.flock(held, fcntl.LOCK_EX)
                self.assertIn("another start has not unpacked it in 1 s", self.start()[1])
        self.assertEqual(self.start()[0], 0)

    def test_another_environment_is_unpacked_meanwhile(self):
        self.fetched()
        (self.state / ".locks").mkdir()
        first = "00" if self.environment.digest[:2] != "00" else "01"
        with open(self.state / ".locks" / first, "w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            self.assertEqual(self.start()[0], 0)

    def test_a_cluster_that_gives_no_answer(self):
        code, said = self.start()
        self.assertEqual(code, 1)
        self.assertRegex(said, "on node n7: its key cannot be read, exit code 2: .*can't open file")

    def test_another_version_of_python(self):
        tools = self.folder / "tools"
        tools.mkdir()
        (tools / VERSION).symlink_to(os.path.realpath(sys.executable))
        old = self.folder / "old"
        old.write_text("#!/bin/sh\necho 3.1.\n")
        old.chmod(0o755)
        self.environment = starling.Environment(venv(self.folder / "b", old))
        self.work = self.state / (".new-" + self.environment.digest)
        self.fetched()
        self.assertEqual(self.start(tools)[0], 0)
        link = self.state / self.environment.digest / "bin" / "python"
        self.assertEqual(os.readlink(link), str(tools / VERSION))

        unknown = venv(self.folder / "c", sys.executable, "python3.99")
        self.environment = starling.Environment(unknown)
        self.work = self.state / (".new-" + self.environment.digest)
        self.fetched()
        text = "it needs Python 3.99 as %s;" % os.path.realpath(sys.executable)
        self.assertIn(text, self.start()[1])

    def test_old_environments_are_removed_unless_they_are_in_use(self):
        self.fetched()
        for k in range(12):
            old = self.state / (("%02x" % k) * 16)
            old.mkdir()
            (old / ".starling-ready").touch()
            os.utime(old, (k, k))
        (self.state / ".new-x").mkdir()
        with open(self.state / ("00" * 16) / ".starling-ready") as used:
            fcntl.flock(used, fcntl.LOCK_SH)
            self.assertEqual(self.start()[0], 0)
        left = sorted(path.name for path in self.state.iterdir() if path.name != ".locks")
        kept = [("%02x" % k) * 16 for k in (0, *range(5, 12))]
        self.assertEqual(left, sorted([*kept, self.environment.digest]))


def look(wait):
    """The module of the environment, the node, and what tells one unpacking from another."""
    import time

    import seldom

    time.sleep(wait)
    ready = os.stat(os.environ["PLACE"] + "/.starling-ready") if "PLACE" in os.environ else None
    number = os.environ["STARLING_NODE"]
    return seldom.NUMBER, seldom.__file__, number, sys.executable, ready and ready.st_ino


@unittest.skipIf(_missing is not None, _missing)
class OnNodes(Folder):
    @classmethod
    def setUpClass(cls):
        cls.cluster = starling.LocalCluster(nodes=2, slots=1)
        cls.cluster.__enter__()
        cls.addClassCleanup(cls.cluster.close)

    def setUp(self):
        super().setUp()
        self.client = self.cluster.client()
        self.addCleanup(self.client.close)

    def environment_jobs(self, name):
        command = [self.cluster.binary, "--dir", self.cluster.dir, "job", "list", "--json"]
        found = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        return sum(job["name"] == "environment " + name for job in found["jobs"])

    def test_a_venv_is_put_once_and_unpacked_once_a_node(self):
        root = venv(self.folder / "first")
        places = {}
        for k in range(2):
            # Two runtimes of one environment.
            more = {"prologue": 'export PLACE="$place"', "env": {"K": k}}
            runtime = starling.Runtime(environment=root, **more)
            with self.cluster.client(runtime=runtime) as client:
                for future in client.map(look, [0.2] * 4):
                    number, file, number_of_node, python, inode = future.result(WAIT)
                    self.assertEqual(number, 41)
                    place = "/nodes/%s/state/environments/" % number_of_node
                    self.assertIn(place, file)
                    self.assertIn(place, python)
                    self.assertEqual(places.setdefault(number_of_node, inode), inode)
        self.assertEqual(self.environment_jobs("first"), 1)

    def test_an_archive_and_a_directory_of_modules(self):
        archive = self.folder / "second.tar.gz"
        starling.Environment(venv(self.folder / "second")).pack(archive)
        (self.folder / "modules").mkdir()
        (self.folder / "modules" / "seldom.py").write_text("NUMBER = 40\n")
        for path, number in ((archive, 41), (self.folder / "modules", 40)):
            runtime = starling.Runtime(environment=path)
            found = self.client.options(runtime=runtime).submit(look, 0).result(WAIT)
            self.assertEqual(found[0], number)
            is_own = "/environments/" in found[3]
            self.assertEqual(is_own, path == archive)

    def refusal(self, root):
        runtime = starling.Runtime(environment=root)
        future = self.client.options(runtime=runtime).submit(look, 0)
        with self.assertRaises(starling.CallRefused) as caught:
            future.result(WAIT)
        return str(caught.exception)

    def test_a_python_that_no_node_has(self):
        text = self.refusal(venv(self.folder / "third", "/nowhere/python3.99", "python3.99"))
        for part in ("on node n", "needs Python 3.99 as /nowhere/python3.99", "install it there"):
            self.assertIn(part, text)

    def test_an_environment_that_the_cluster_has_no_more(self):
        root = venv(self.folder / "fourth")
        (root / "more").write_text("so that its content differs")
        environment = starling.Environment(root)
        environment._put(self.cluster.dir)
        self.client._core.kv_remove(b"environment/" + environment.digest.encode())
        runtime = starling.Runtime(environment=environment)
        with self.assertRaisesRegex(starling.CallRefused, "on node n.*has it no more"):
            self.client.options(runtime=runtime).submit(look, 0).result(WAIT)

    def test_a_cluster_that_does_not_answer(self):
        environment = starling.Environment(venv(self.folder / "fifth"))
        with self.assertRaisesRegex(starling.ClusterError, "could not be given to the cluster"):
            environment._put(self.folder / "no-cluster")

"""Files of Snakemake on the nodes. Skipped without Snakemake, the extension module, the program."""

import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import unittest

from . import node  # noqa: F401 (it sets the path)
from .test_adapters import missing
import starling

_missing = missing("snakemake_interface_storage_plugins.tests")
if _missing is None:
    from .test_end_to_end import missing as missing_nodes

    import snakemake_storage_plugin_starling as plugin
    from snakemake_interface_common.exceptions import WorkflowError
    from snakemake_interface_storage_plugins.tests import TestStorageBase, logger
    from snakemake_storage_plugin_starling import _objects

    _no_nodes = missing_nodes()
else:
    _no_nodes = _missing
    TestStorageBase = object
# Nine jobs. All slots are taken by jobs that store files.
SNAKEFILE = """
rule all:
    input: local("total.txt")
rule first:
    output: temp("parts/{n}.txt")
    shell: "echo {wildcards.n} > {output}"
rule second:
    input: "parts/{n}.txt"
    output: "squares/{n}.txt", directory("lists/{n}")
    run:
        import os
        number = int(open(input[0]).read())
        open(output[0], "w").write("%d\\n" % number**2)
        os.makedirs(output[1])
        open(os.path.join(output[1], "list"), "w").write("%d\\n" % number)
rule third:
    input: expand("squares/{n}.txt", n=range(3)), expand("lists/{n}", n=range(3))
    output: "sum.txt"
    log: "sum.log"
    shell: "cat {input[0]} {input[1]} {input[2]} {input[3]}/list {input[4]}/list {input[5]}/list"
        " > {output} 2> {log}"
rule last:
    input: "sum.txt"
    output: local("total.txt")
    shell: "cp {input} {output}"
"""
OPTIONS = [
    *("--executor", "starling", "--jobs", "4", "--quiet", "progress"),
    *("--default-storage-provider", "starling", "--default-storage-prefix", "starling://test"),
    *("--shared-fs-usage", "persistence", "software-deployment", "sources", "source-cache"),
]


def cluster_of(case):
    """Two nodes with one slot each, for the tests of a class."""
    cluster = starling.LocalCluster(nodes=2, slots=1)
    case.addClassCleanup(cluster.close)
    return cluster


def command(cluster, *arguments):
    argv = [cluster.binary, "--dir", cluster.dir, *arguments]
    return subprocess.run(argv, capture_output=True, text=True)


def bytes_below(folder):
    files = (path for path in pathlib.Path(folder).rglob("*") if path.is_file())
    return sum(path.lstat().st_size for path in files)


@unittest.skipIf(_missing is not None, _missing)
class Names(unittest.TestCase):
    def provider(self, **more):
        folder = tempfile.TemporaryDirectory(prefix="starling-storage-")
        self.addCleanup(folder.cleanup)
        prefix = pathlib.Path(folder.name)
        return plugin.StorageProvider(local_prefix=prefix, logger=logger, **more)

    def test_names(self):
        valid = plugin.StorageProvider.is_valid_query
        for query in ("starling://a", "starling://a/b.txt", "starling://{sample}/x.bam"):
            self.assertTrue(valid(query), query)
        for query, reason in (
            ("a/b", "starling://"),
            ("s3://a/b", "starling://"),
            ("starling:///data/x", r'local\("/data/x"\)'),
            ("starling://a/../b", "parts"),
            ("starling://", "parts"),
            ("starling://" + "x" * 5000, "4096 bytes"),
        ):
            self.assertFalse(valid(query), query)
            self.assertRegex(str(valid(query)), reason)

    def test_a_path_is_a_name_without_a_prefix(self):
        self.assertEqual(self.provider(is_default=True).object("a/b").query, "starling://a/b")
        found = self.provider().object("starling://a/b")
        self.assertEqual((found.query, found.local_suffix()), ("starling://a/b", "a/b"))

    def test_copies(self):
        settings = plugin.StorageProviderSettings(copies=6)
        with self.assertRaisesRegex(WorkflowError, "copies is 6, and has to be 1 to 5"):
            self.provider(settings=settings)

    def test_a_node_uses_its_own_directory(self):
        before = dict(os.environ)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(before)))
        os.environ.pop("STARLING_NODE", None)
        os.environ["STARLING_DIR"] = "/of/node"
        self.assertEqual(_objects.directory_of("/given"), "/given")
        self.assertEqual(_objects.directory_of(None), "/of/node")
        os.environ["STARLING_NODE"] = "3"
        self.assertEqual(_objects.directory_of("/given"), "/of/node")

    @unittest.skipIf(_no_nodes is not None, _no_nodes)
    def test_no_cluster(self):
        settings = plugin.StorageProviderSettings(dir="/nowhere/at/all")
        found = self.provider(settings=settings).object("starling://a")
        with self.assertRaises(_objects.StoreError) as caught:
            found.exists()
        for part in ("no cluster at /nowhere/at/all", "starling up", "STARLING_DIR"):
            self.assertIn(part, str(caught.exception))


class Interface(TestStorageBase):
    """The tests that come with the interface."""

    files_only = False
    touch = True

    def __init__(self, directory):
        self.directory = directory

    def get_storage_provider_cls(self):
        return plugin.StorageProvider

    def get_storage_provider_settings(self):
        return plugin.StorageProviderSettings(dir=self.directory)

    def get_query(self, tmp_path):
        return "starling://some/test.txt"

    def get_query_not_existing(self, tmp_path):
        return "starling://some/other.txt"


@unittest.skipIf(_no_nodes is not None, _no_nodes)
class OnNodes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cluster_of(cls)

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="starling-storage-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.objects = _objects.Objects(self.cluster.dir)

    def test_the_interface(self):
        tests = Interface(self.cluster.dir)
        tests.test_storage(self.folder)
        tests.test_storage_not_existing(self.folder)
        tests.test_query_validation(self.folder)
        tests.test_example_queries(self.folder)

    def stored(self, name, data):
        path = self.folder / "here"
        path.write_bytes(data)
        os.chmod(path, 0o750)
        os.utime(path, (1_000_000_000, 1_000_000_000))
        self.objects.store(name, path)
        path.unlink()
        return self.objects.find(name)

    def test_a_file_comes_back_as_it_was(self):
        self.stored("a/file", b"one\0\n")
        there = self.folder / "deep" / "there"
        self.objects.fetch("a/file", there)
        found = there.stat()
        self.assertEqual(there.read_bytes(), b"one\0\n")
        self.assertEqual((found.st_mtime, found.st_mode & 0o777), (1_000_000_000, 0o750))
        # Nothing else lies beside it.
        self.assertEqual(os.listdir(there.parent), ["there"])
        self.assertEqual([name for name in os.listdir(self.folder)], ["deep"])

    def test_names_are_any_text(self):
        for name in ("glob:*", "a b/ü", "-x", "%s", "dir/object", "x" * 300):
            self.stored(name, name.encode())
            self.objects.fetch(name, self.folder / "there")
            self.assertEqual((self.folder / "there").read_text(), name)
            self.objects.remove(name)
            self.assertIsNone(self.objects.find(name), name)

    def test_directories_links_and_empty_files(self):
        tree = self.folder / "tree"
        (tree / "in").mkdir(parents=True)
        (tree / "in" / "empty").touch()
        (tree / "x").write_text("12345")
        (tree / "link").symlink_to("x")
        self.objects.store("tree", tree)
        self.assertEqual(self.objects.find("tree").size, 5)
        shutil.rmtree(tree)
        self.objects.fetch("tree", tree)
        self.assertEqual((tree / "link").read_text(), "12345")
        self.assertEqual((tree / "in" / "empty").read_text(), "")
        # A link is stored as the file that it names.
        (self.folder / "link").symlink_to(tree / "x")
        self.objects.store("link", self.folder / "link")
        self.objects.fetch("link", self.folder / "file")
        self.assertEqual((self.folder / "file").read_text(), "12345")
        self.assertFalse((self.folder / "file").is_symlink())

    def test_space_is_freed(self):
        size = 20 << 20
        before = bytes_below(self.cluster.dir)
        first = self.stored("large", random.Random(1).randbytes(size))
        self.assertGreaterEqual(bytes_below(self.cluster.dir) - before, size)
        second = self.stored("large", random.Random(2).randbytes(size))
        self.assertNotEqual(first.job, second.job)
        # A replaced object is gone as well.
        self.assertNotEqual(command(self.cluster, "job", "info", first.job).returncode, 0)
        self.objects.remove("large")
        self.objects.remove("large")
        self.assertIsNone(self.objects.find("large"))
        end = _until(lambda: bytes_below(self.cluster.dir) - before < size // 4)
        self.assertTrue(end, "%d bytes more than before" % (bytes_below(self.cluster.dir) - before))

    def test_a_lost_object_is_named_and_made_again(self):
        entry = self.stored("lost", b"x")
        command(self.cluster, "job", "forget", "--results", entry.job)
        with self.assertRaisesRegex(_objects.StoreError, "starling://lost .*forgotten.*next run"):
            self.objects.fetch("lost", self.folder / "lost")
        self.assertIsNone(self.objects.find("lost"))
        with self.assertRaisesRegex(_objects.StoreError, "no object starling://lost"):
            self.objects.fetch("lost", self.folder / "lost")
        self.assertEqual(os.listdir(self.folder), [])

    def test_two_writers(self):
        self.stored("both", b"1")
        other, (path, swap) = _objects.Objects(self.cluster.dir), (self.folder / "o", None)
        path.write_bytes(b"2")
        swap, done = self.objects._swap, []

        def late(name, before, entry):
            if not done:
                done.append(True)
                other.store(name, path)
            return swap(name, before, entry)

        self.objects._swap = late
        last = self.stored("both", b"3")
        self.assertEqual(self.objects.find("both"), last)
        self.objects.fetch("both", path)
        self.assertEqual(path.read_bytes(), b"3")

    def test_the_program_that_answers_is_started_again(self):
        self.stored("again", b"x")
        self.objects._lines._process.kill()
        self.objects._lines._process.wait()
        self.assertIsNotNone(self.objects.find("again"))


def _until(is_so, seconds=30):
    import time

    end = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


@unittest.skipIf(_no_nodes or missing("snakemake.api"), _no_nodes or missing("snakemake.api"))
class Workflows(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cluster_of(cls)

    def run_snakemake(self, folder, gear, *more):
        argv = [sys.executable, "-m", "snakemake", *OPTIONS, "--starling-gear", gear, *more]
        argv += ["--remote-job-local-storage-prefix", str(folder / "copies-$GEAR")]
        argv += ["--envvars", "GEAR"]
        env = {**os.environ, "STARLING_DIR": self.cluster.dir, "GEAR": gear}
        return subprocess.run(
            argv, cwd=folder / "work", env=env, capture_output=True, text=True, timeout=300
        )

    def test_gears(self):
        for gear in ("strict", "warm"):
            with self.subTest(gear), tempfile.TemporaryDirectory() as name:
                self.check(pathlib.Path(name), gear)

    def check(self, folder, gear):
        work = folder / "work"
        work.mkdir()
        (work / "Snakefile").write_text(SNAKEFILE)
        done = self.run_snakemake(folder, gear)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((work / "total.txt").read_text(), "0\n1\n4\n0\n1\n2\n")
        # The files between the rules were never here, and their copies are gone.
        names = {"parts", "squares", "lists", "sum.txt", "sum.log", "0.txt", "list"}
        found = {path.name for path in folder.rglob("*") if path.is_file()}
        self.assertFalse(found & names)
        self.assertFalse({path.name for path in work.iterdir()} & names)
        self.assertEqual(list((folder / ("copies-" + gear)).iterdir()), [])
        # They are objects, but for the temporary ones.
        objects = _objects.Objects(self.cluster.dir)
        for n in range(3):
            self.assertEqual(objects.find("test/squares/%d.txt" % n).size, 2)
            self.assertTrue(objects.find("test/lists/%d" % n).is_directory)
            self.assertIsNone(objects.find("test/parts/%d.txt" % n))
        again = self.run_snakemake(folder, gear, "--summary")
        self.assertNotIn("update pending", again.stdout)
        # A lost object is made again, with what it needs.
        entry = objects.find("test/squares/1.txt")
        command(self.cluster, "job", "forget", "--results", entry.job)
        objects.remove("test/sum.txt")
        (work / "total.txt").unlink()
        failed = self.run_snakemake(folder, gear)
        self.assertNotEqual(failed.returncode, 0)
        self.assertIn("starling://test/squares/1.txt (kept by job", failed.stderr)
        self.assertIsNone(objects.find("test/squares/1.txt"))
        last = self.run_snakemake(folder, gear)
        self.assertEqual(last.returncode, 0, last.stderr)
        self.assertEqual((work / "total.txt").read_text(), "0\n1\n4\n0\n1\n2\n")
        self.assertNotEqual(objects.find("test/squares/1.txt").job, entry.job)
        for name in ["sum.txt"] + [p % n for n in range(3) for p in ("squares/%d.txt", "lists/%d")]:
            objects.remove("test/" + name)


if __name__ == "__main__":
    unittest.main()

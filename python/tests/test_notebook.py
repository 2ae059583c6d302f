"""What notebooks show, and interrupts."""

import concurrent.futures
import importlib.util
import io
import signal
import threading
import time
import unittest

from . import fake_core, node  # noqa: F401 (it sets the path)
import starling
from starling import _progress
from .test_end_to_end import WAIT, _missing


def slow(seconds):
    time.sleep(seconds)
    return seconds


def fails(*_):
    raise KeyError("no")


def interrupt():
    """As Ctrl-C."""
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)


class Pictures(unittest.TestCase):
    def setUp(self):
        self.core = fake_core.Core(workers=4)
        self.addCleanup(self.core.close)
        self.client = starling.Client(_core=self.core)
        self.addCleanup(self.client.close)

    def test_progress_as_text(self):
        futures = [self.client.submit(abs, -k) for k in range(4)]
        futures += [self.client.submit(fails, k) for k in range(2)]
        said = io.StringIO()
        shown = starling.progress(futures + futures[:2], file=said)
        self.assertEqual(shown.counts, {"abs": (4, 4, 0, 0), "fails": (2, 0, 2, 0)})
        first, second = said.getvalue().splitlines()
        self.assertRegex(first, r"^abs   \[#{30}\] 4 of 4 done$")
        self.assertRegex(second, r"^fails \[#{30}\] 0 of 2 done, 2 failed$")
        self.assertEqual(str(starling.progress([], file=said)), "no calls")

    def test_progress_goes_on_without_a_wait(self):
        future = concurrent.futures.Future()
        cancelled = concurrent.futures.Future()
        shown = starling.progress([future, cancelled], wait=False)
        self.assertIn("0 of 2 done", str(shown))
        future.set_result(1)
        cancelled.cancel()
        self.assertIn("1 of 2 done, 1 cancelled", shown._repr_html_())
        self.assertIn('<progress max="2" value="2">', shown._repr_html_())

    def test_pictures_are_rare(self):
        drawn = []

        class Handle:
            def update(self, shown):
                drawn.append(str(shown))

        futures = [concurrent.futures.Future() for _ in range(1000)]
        shown = _progress.Progress(futures, io.StringIO())
        shown._handle = Handle()
        began = time.monotonic()
        shown.start(draws=True)
        for future in futures:
            future.set_result(None)
        most = (time.monotonic() - began) / _progress.FRAME_S + 2
        self.assertLessEqual(len(drawn), most)
        self.assertIn("1000 of 1000", drawn[-1])

    def test_many_names(self):
        futures = []
        for k in range(14):
            future = concurrent.futures.Future()
            future._name = "<%d>" % k
            futures.append(future)
        shown = starling.progress(futures, wait=False, file=io.StringIO())
        self.assertEqual(len(str(shown).splitlines()), _progress.NAMES_MAX + 1)
        self.assertIn("4 others", str(shown))
        self.assertIn("&lt;0&gt;", shown._repr_html_())

    def test_client_and_future(self):
        future = self.client.submit(slow, 2)
        self.assertIn("pending", future._repr_html_())
        found = self.client._repr_html_()
        self.assertIn("open calls: 1 slow", found)
        self.assertIn("<th>node</th>", found)
        self.assertEqual(future.result(WAIT), 2)
        self.assertIn("done", future._repr_html_())
        self.assertNotIn("open calls", self.client._repr_html_())

    def test_an_interrupt_leaves_the_calls(self):
        # A process in the background of a shell ignores it.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)
        future = self.client.submit(slow, 5)
        waits = (
            future.result,
            lambda: starling.progress([future], file=io.StringIO()),
            lambda: list(starling.as_completed([future])),
            lambda: starling.gather([future]),
        )
        for wait in waits:
            timer = threading.Timer(0.1, interrupt)
            timer.start()
            with self.assertRaises(KeyboardInterrupt):
                wait()
            timer.join()
            self.assertFalse(future.done())
        self.assertEqual(future.result(WAIT), 5)


CELLS = (
    "import os, signal, starling, threading, time\n"
    "c = starling.LocalCluster(nodes=1, slots=1).client()\nc",
    "def f():\n    return 1\nfirst = c.submit(f)",
    "def f():\n    return 2\nsecond = c.submit(f)\nfirst.result(), second.result()",
    "slow = c.submit(time.sleep, 5)\n"
    "to = threading.main_thread().ident, signal.SIGINT\n"
    "threading.Timer(1, signal.pthread_kill, to).start()\n"
    "try:\n    slow.result()\nexcept KeyboardInterrupt:\n    print('ended:', slow.done())",
    "_ = starling.progress([slow])\nslow.result() is None",
    "c.submit(print, 'kept').result()\nc.close()",
)


@unittest.skipIf(_missing is not None, _missing)
class OnNodes(unittest.TestCase):
    def test_a_cluster(self):
        with starling.LocalCluster(nodes=1, slots=1) as cluster:
            self.assertIn("<td>runs</td>", cluster._repr_html_())
            self.assertIn(cluster.dir, cluster._repr_html_())
        self.assertIn("<td>closed</td>", cluster._repr_html_())

    @unittest.skipIf(importlib.util.find_spec("nbclient") is None, "nbclient is not installed")
    @unittest.skipIf(importlib.util.find_spec("ipykernel") is None, "ipykernel is not installed")
    def test_a_notebook(self):
        import nbclient
        import nbformat

        cells = [nbformat.v4.new_code_cell(cell) for cell in CELLS]
        notebook = nbformat.v4.new_notebook(cells=cells)
        nbclient.NotebookClient(notebook, timeout=WAIT, kernel_name="python3").execute()
        first, _, values, interrupted, shown, last = (cell.outputs for cell in notebook.cells)
        self.assertIn("<th>node</th>", first[0].data["text/html"])
        self.assertEqual(values[0].data["text/plain"], "(1, 2)")
        self.assertEqual(interrupted[0].text, "ended: False\n")
        self.assertIn("1 of 1 done", shown[0].data["text/html"])
        self.assertEqual(shown[-1].data["text/plain"], "True")
        # What calls print does not come by itself.
        self.assertEqual(last, [])

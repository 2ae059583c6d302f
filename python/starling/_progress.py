"""Progress of calls, as text or in a notebook. It follows the ends of calls as they come."""

import concurrent.futures
import html
import sys
import threading
import time

# The shortest time between two pictures.
FRAME_S = 0.1
NAMES_MAX = 10
_WIDTH = 30


def progress(futures, *, wait=True, file=None):
    """Shows how many calls have ended, by name, until all have ended; returns a `Progress`.

    With `wait=False` it returns at once, and the picture goes on in a notebook. An interrupt ends
    the wait and leaves the calls.
    """
    shown = Progress(futures, file)
    shown.start(draws=not wait)
    if wait:
        shown.wait()
    return shown


class Counts:
    __slots__ = ("total", "done", "failed", "cancelled")

    def __init__(self):
        self.total = self.done = self.failed = self.cancelled = 0

    @property
    def left(self):
        return self.total - self.done - self.failed - self.cancelled

    def text(self):
        parts = ["%d of %d done" % (self.done, self.total)]
        parts += ["%d %s" % (count, word) for count, word in self.others() if count]
        return ", ".join(parts)

    def others(self):
        return (self.failed, "failed"), (self.cancelled, "cancelled")


class Progress:
    """The numbers of calls by name. `str()` and a notebook show them as they are now."""

    def __init__(self, futures, file=None):
        self._futures = list(dict.fromkeys(futures))
        self._file = file or sys.stderr
        self._lock = threading.Lock()
        self._counts = {}
        self._left = len(self._futures)
        self._drawn_at = 0.0
        self._lines = 0
        self._draws = False
        for future in self._futures:
            self._counts.setdefault(_name(future), Counts()).total += 1
        self._handle = _notebook(self) if file is None else None

    def start(self, draws):
        self._draws = draws and self._handle is not None
        for future in self._futures:
            future.add_done_callback(self._ended)

    def _ended(self, future):
        """From the thread that brings ends."""
        if future.cancelled():
            word = "cancelled"
        else:
            # Not that of a subclass, which may ask a node for the cause.
            error = concurrent.futures.Future.exception(future)
            word = "done" if error is None else "failed"
        with self._lock:
            counts = self._counts[_name(future)]
            setattr(counts, word, getattr(counts, word) + 1)
            self._left -= 1
        if self._draws:
            self._draw()

    def wait(self):
        left = self._futures
        while left:
            left = concurrent.futures.wait(left, FRAME_S).not_done
            self._draw()
        # A callback may follow the end of its future.
        while self._left:
            time.sleep(0.001)
        self._draw(is_last=True)

    @property
    def counts(self):
        """By name: total, done, failed, cancelled."""
        with self._lock:
            found = self._counts.items()
            return {name: (it.total, it.done, it.failed, it.cancelled) for name, it in found}

    def _rows(self):
        """(name, counts) of the names with most calls; the others together."""
        with self._lock:
            ordered = sorted(self._counts.items(), key=lambda pair: -pair[1].total)
        rows, rest = ordered[:NAMES_MAX], ordered[NAMES_MAX:]
        if rest:
            others = Counts()
            for _, counts in rest:
                for field in Counts.__slots__:
                    setattr(others, field, getattr(others, field) + getattr(counts, field))
            rows.append(("%d others" % len(rest), others))
        return rows

    def _draw(self, is_last=False):
        now = time.monotonic()
        with self._lock:
            if now - self._drawn_at < FRAME_S and not is_last and self._left:
                return
            self._drawn_at = now
        if self._handle is not None:
            self._handle.update(self)
        elif self._file.isatty():
            # Over the picture before.
            up = "\x1b[%dA" % self._lines if self._lines else ""
            lines = str(self).split("\n")
            self._lines = len(lines)
            print(up + "\n".join("\r\x1b[K" + line for line in lines), file=self._file, flush=True)
        elif is_last:
            print(self, file=self._file, flush=True)

    def __str__(self):
        rows = self._rows()
        width = max((len(name) for name, _ in rows), default=0)
        lines = []
        for name, counts in rows:
            ended = (counts.total - counts.left) * _WIDTH // counts.total
            bar = "#" * ended + "." * (_WIDTH - ended)
            lines.append("%-*s [%s] %s" % (width, name, bar, counts.text()))
        return "\n".join(lines) or "no calls"

    __repr__ = __str__

    def _repr_html_(self):
        rows = "".join(
            '<tr><td>%s</td><td><progress max="%d" value="%d"></progress></td><td>%s</td></tr>'
            % (html.escape(name), it.total, it.total - it.left, html.escape(it.text()))
            for name, it in self._rows()
        )
        return "<table>%s</table>" % rows if rows else "no calls"


def _name(future):
    return getattr(future, "_name", None) or "call"


def _notebook(shown):
    """What shows a picture in a notebook; None outside of one."""
    shell = sys.modules.get("IPython")
    running = shell.get_ipython() if shell is not None else None
    if running is None or not hasattr(running, "kernel"):
        return None
    return shell.display.display(shown, display_id=True)

"""The loop of a worker: read a frame, run its calls in order, write their results."""

import faulthandler
import gc
import mmap
import os
import pickle
import resource
import signal
import sys
import time
import types

from . import context, failures, nested, safety, values, wire
from .modules import Carried

IN, OUT, WORD = 3, 4, 5
FLUSH_NS = 1_000_000
FLUSH_BYTES = 1 << 16
RSS_EVERY_NS = 1_000_000
# An interrupt that waits for the end of an import is tried again after this time.
IMPORT_LOOK_S = 0.02

# The variables for numbers of threads that the zygote has set itself.
THREAD_NAMES: "list[str]" = []

_now = time.monotonic_ns
_NONE = wire.value(wire.INLINE, wire.PICKLE, 0, pickle.dumps(None, 5))


class Refused(Exception):
    """A call that this worker cannot run: (type, text, frames)."""


class Worker:
    def __init__(self, word):
        self.word = word
        self.functions = {}
        self.out = []
        self.out_bytes = 0
        self.first_ns = 0
        self.in_call = False
        self.child = 0
        self.rss = 0
        self.rss_ns = 0
        self.alarm = False
        # An interrupt waits for the end of an import.
        self.is_put_off = False
        # A frame is not whole: neither the alarm nor an interrupt may come between.
        self.in_frame = False
        self.is_late = False
        self.inputs = {}
        self.buffer = bytearray()
        self.cpus = 1
        self.printed = _flusher()
        self.objects = os.environ.get("STARLING_WORKER_OBJECTS", "")
        context._state["send_note"] = self.note
        context._state["slots"] = self.slot
        self.line = context._state["line"] = nested.Line(self)

    # Frames.

    def run(self):
        buffer = self.buffer
        while True:
            data = wire.read_frame(IN, buffer)
            if data is None:
                return 0
            for kind, body in wire.records(data):
                if kind == wire.CALL:
                    self.call(body)
                elif kind == wire.STOP:
                    self.flush()
                    return 0
                else:
                    self.handle(kind, body)
            # A whole further frame may be here; its results then travel with these.
            if not wire.whole_frame(buffer) or _now() - self.first_ns > FLUSH_NS:
                self.flush()

    def handle(self, kind, body):
        """A record that may come while a call runs."""
        if kind == wire.ANSWER:
            self.line.answered(body)
        elif kind == wire.GO:
            self.line.goes(body)
        elif kind == wire.FUNC:
            self.learn(body)
        elif kind == wire.DROP:
            self.functions.pop(bytes(body), None)
        elif kind == wire.CALL:
            self.call_on_top(body)
        elif kind == wire.STOP:
            # Its call is not wanted any more.
            os._exit(0)
        else:
            raise wire.Garbage("record kind %d" % kind)

    def send(self, data):
        """Sends a record of the running call at once."""
        self.in_frame = True
        try:
            self.append(data)
            self.flush()
        finally:
            self.in_frame = False
        self.raise_late()

    def read(self):
        """The next frame for the running call; None at the end."""
        self.in_frame = True
        try:
            return wire.read_frame(IN, self.buffer)
        finally:
            self.in_frame = False

    def learn(self, body):
        if len(body) < 24:
            raise wire.Garbage("FUNC of %d bytes" % len(body))
        self.functions[body[:16]] = wire.values(body, 16, 1)[0]

    def append(self, data):
        if self.out_bytes + len(data) > wire.FRAME_MAX:
            self.flush()
        if not self.out:
            self.first_ns = _now()
        self.out.append(data)
        self.out_bytes += len(data)

    def flush(self):
        if self.alarm:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self.alarm = False
            if self.is_put_off:
                self.look_again()
        if self.out:
            out, self.out, length = self.out, [], self.out_bytes
            self.out_bytes = 0
            wire.write_all(OUT, wire.U32.pack(length) + b"".join(out))

    # One call.

    def call(self, body):
        if len(body) < 72:
            raise wire.Garbage("CALL of %d bytes" % len(body))
        head = wire.CALL_HEAD.unpack_from(body)
        given = wire.values(body, 64, head[8])
        if not given:
            raise wire.Garbage("CALL without arguments")
        if self.out and not self.alarm:
            # If this call is long, the alarm sends the results that wait.
            self.alarm = True
            signal.setitimer(signal.ITIMER_REAL, 0.001)
        word, call = self.word, head[0]
        start = _now()
        word[1] = start
        word[0] = call
        try:
            if head[7] & wire.FORK_CALL:
                self.forked(call, start, head, given)
            else:
                self.answer(call, start, *self.attempt(head, given))
        except KeyboardInterrupt:
            # The signal came between the call's last line and the end of its record.
            self.in_call = False
            self.answer(call, start, wire.CANCELLED, 0, [failures.error_value("Cancelled", "")])
        word[0] = 0
        word[2] += 1
        if self.out_bytes > FLUSH_BYTES:
            self.flush()

    def call_on_top(self, body):
        """Runs a call inside the wait of another, which goes on afterwards."""
        if context._state["head"] is None:
            return self.call(body)
        word, head, inputs = self.word, context._state["head"], self.inputs
        start, cpus = word[1], self.cpus
        # What was printed so far is of the call that waits.
        self.printed(self, head[0])
        self.line.make_room()
        self.inputs, self.in_call = {}, False
        try:
            self.call(body)
            self.flush()
        finally:
            context._state["head"], self.inputs = head, inputs
            word[1] = start
            word[0] = head[0]
            if cpus != self.cpus:
                self.use_cpus(cpus)
            self.in_call = True
        if word[3] == head[0]:
            self.in_call = False
            raise KeyboardInterrupt

    def attempt(self, head, given):
        """Runs the call: (status, flags, values)."""
        retry_on = None
        try:
            context._state["head"] = head
            self.in_call, self.is_late = True, False
            if self.word[3] == head[0]:
                raise KeyboardInterrupt
            if head[6] != self.cpus * 1000:
                self.use_cpus(max(1, head[6] // 1000))
            function, retry_on = self.function(head[1])
            if type(function) is Carried:
                function = function.ready()
            how, codec, _, data = given[0]
            if len(given) > 1:
                self.inputs = {entry[2]: entry for entry in given[1:]}
            if codec == wire.RAW and not data:
                result = function()
            else:
                args, kwargs = self.arguments(how, codec, data)
                result = function(*args, **kwargs)
                args = kwargs = None
            if codec == wire.JSON:
                found = self.json_output(head[0], result)
            else:
                found = _NONE if result is None else self.output(head[0], result)
            self.in_call = False
            return wire.OK, 0, [found]
        except BaseException as error:
            self.in_call = False
            return self.failed(head[0], error, retry_on)
        finally:
            if self.line.cores:
                self.end_line(head[0])
            context._state["head"] = None
            if self.inputs:
                self.inputs = {}

    def end_line(self, call):
        """Ends the clients of a call. The node ends their job."""
        try:
            self.line.call_ended(call)
        except Exception:
            # They have ended all the same, and the call has its result.
            return

    def use_cpus(self, cpus):
        """The number of threads of libraries, unless the user has set it."""
        self.cpus = cpus
        for name in THREAD_NAMES:
            os.environ[name] = str(cpus)
        if THREAD_NAMES:
            limit_threads(cpus)

    def failed(self, call, error, retry_on):
        if isinstance(error, Refused):
            return wire.REFUSED, 0, [failures.error_value(*error.args)]
        if isinstance(error, KeyboardInterrupt) and self.word[3] == call:
            trace = failures.raised_values(error, 1)
            return wire.CANCELLED, 0, trace[:1]
        flags = 0
        if retry_on is not None and isinstance(error, retry_on):
            flags = wire.RETRYABLE
        found = failures.raised_values(error, 1)
        error.__traceback__ = None
        return wire.RAISED, flags, found

    def function(self, key):
        entry = self.functions.get(key)
        if entry is None:
            raise Refused("UnknownFunction", "no function %s was sent to this worker" % key.hex())
        if len(entry) == 4:
            # As received; from here on it is the pair of function and `retry_on`.
            self.functions[key] = entry = load_function(entry)
        return entry

    def arguments(self, how, codec, data):
        try:
            if codec == wire.JSON:
                args = self.fill(values.load(how, codec, data))
                return (args, {}) if isinstance(args, list) else (args["args"], args["kwargs"])
            args, kwargs = values.load(how, codec, data)
            return args, kwargs
        except KeyboardInterrupt:
            raise
        except Exception as error:
            raise refusal("the arguments of the call cannot be unpickled", error)

    def fill(self, args):
        """JSON arguments with the inputs in the places of `{"$slot": k}`."""
        if isinstance(args, dict):
            if list(args) == ["$slot"]:
                return self.slot(args["$slot"])
            return {key: self.fill(entry) for key, entry in args.items()}
        if isinstance(args, list):
            return [self.fill(entry) for entry in args]
        return args

    def slot(self, number):
        entry = self.inputs[number]
        if len(entry) == 4:
            how, codec, _, data = entry
            entry = self.inputs[number] = (values.load(how, codec, data),)
        return entry[0]

    def json_output(self, call, result):
        data = values.json_bytes(result)
        return self.output(call, result) if data is None else self.place(call, wire.JSON, [data])

    def output(self, call, result):
        return self.place(call, *values.dumps(result))

    def place(self, call, codec, parts):
        if values.size_of(parts) <= wire.INLINE_MAX:
            return wire.value(wire.INLINE, codec, 0, b"".join(parts))
        path = os.path.join(self.objects, "%d.%d.0" % (os.getpid(), call))
        values.write_file(path, parts)
        return wire.value(wire.FILE, codec, 0, os.fsencode(path))

    def answer(self, call, start, status, flags, found):
        self.printed(self, call)
        end = _now()
        if end - self.rss_ns > RSS_EVERY_NS:
            self.rss_ns = end
            self.rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        body = b"".join(found)
        head = wire.RESULT_HEAD.pack(call, start, end, self.rss, status, flags, len(found), 0)
        self.append(wire.RECORD.pack(40 + len(body), wire.RESULT) + head + body)

    def note(self, text):
        data = text.encode("utf-8", "replace")[: wire.INLINE_MAX]
        call = context._state["head"][0]
        self.send(wire.record(wire.NOTE, wire.U64.pack(call) + data))

    # A call in a fork.

    def forked(self, call, start, head, given):
        obstacle = safety.fork_obstacle()
        if obstacle is not None:
            text = "this call asks for a fork of its own, but the worker has %s" % obstacle[1]
            found = [failures.error_value("CannotFork", text)]
            return self.answer(call, start, wire.REFUSED, 0, found)
        self.flush()
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            self.child_call(call, start, head, given, reader, writer)
        os.close(writer)
        self.child = pid
        if self.word[3] == call:
            os.kill(pid, signal.SIGINT)
        data = bytearray()
        while True:
            more = os.read(reader, wire.FRAME_MAX)
            if not more:
                break
            data += more
        os.close(reader)
        _, status = os.waitpid(pid, 0)
        self.child = 0
        if status == 0 and data:
            return self.append(bytes(data))
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            text, more = "the fork of the call died of signal %d" % number, {"signal": number}
        else:
            number = os.WEXITSTATUS(status)
            text, more = "the fork of the call ended with exit code %d" % number, {"exit": number}
        found = [failures.error_value("Died", text, **more)]
        self.answer(call, start, wire.DIED, 0, found)

    def child_call(self, call, start, head, given, reader, writer):
        code = 1
        try:
            os.close(reader)
            reseed()
            context._state["send_note"] = context._state["line"] = None
            self.answer(call, start, *self.attempt(head, given))
            wire.write_all(writer, b"".join(self.out))
            code = 0
        finally:
            os._exit(code)

    # Signals.

    def interrupted(self, _number, frame):
        self.is_put_off = False
        if self.word[3] == 0 or self.word[0] != self.word[3]:
            return
        if self.child:
            os.kill(self.child, signal.SIGINT)
        elif self.in_frame:
            self.is_late = True
        elif self.in_call and is_importing(frame):
            self.is_put_off = True
            self.look_again()
        elif self.in_call:
            self.in_call = False
            raise KeyboardInterrupt

    def look_again(self):
        signal.setitimer(signal.ITIMER_REAL, IMPORT_LOOK_S)

    def raise_late(self):
        """Raises an interrupt that came inside a frame, unless another call runs by now."""
        if self.is_late and self.in_call and self.word[0] == self.word[3]:
            self.is_late = self.in_call = False
            raise KeyboardInterrupt

    def alarmed(self, number, frame):
        if self.in_call and not self.in_frame:
            self.flush()
        if self.is_put_off:
            self.interrupted(number, frame)


def is_importing(frame):
    """Whether a module is being imported. One that is interrupted there leaves modules of its own
    behind, and the next call that imports it fails."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def load_function(entry):
    how, codec, _, data = entry
    if how == wire.FILE:
        with open(os.fsdecode(data), "rb") as file:
            data = file.read()
    if codec == wire.TEXT:
        return named_function(str(data, "utf-8")), None
    if codec != wire.RAW or len(data) < 2:
        raise Refused("WrongFunction", "the bytes are no Python function (codec %d)" % codec)
    made, here = (data[0], data[1]), sys.version_info[:2]
    if made != here:
        text = (
            "the function was pickled by Python %d.%d, and this worker%s is Python %d.%d (%s). "
            "Give the runtime a Python of the client's version."
        )
        raise Refused("WrongPython", text % (made + (on_node(),) + here + (sys.executable,)))
    try:
        function, retry_on = pickle.loads(data[2:])
    except KeyboardInterrupt:
        raise
    except Exception as error:
        raise refusal("the function cannot be loaded", error)
    return function, retry_on


def named_function(name):
    """The function of a text `module:name`, where the name may have dots."""
    import importlib

    module, _, path = name.partition(":")
    try:
        found = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except KeyboardInterrupt:
        raise
    except Exception as error:
        raise refusal("the function %s cannot be loaded" % name, error)
    if not callable(found):
        raise Refused("WrongFunction", "%s is no function but %r" % (name, type(found)))
    return found


def on_node():
    node = os.environ.get("STARLING_NODE")
    return " on node n%s" % node if node else ""


def refusal(what, error):
    text = "%s: %s: %s" % (what, failures.name_of(error), failures.text_of(error))
    if isinstance(error, ImportError):
        text += missing_module(
            "let the function's module lie beside the script, so that it travels by value"
        )
    import traceback

    frames = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return Refused(failures.name_of(error), text, frames)


def missing_module(remedy):
    """Where a module is missing, and what helps."""
    where = (on_node(),) + sys.version_info[:2] + (sys.executable,)
    text = ". This worker%s is Python %d.%d (%s). Install the module there, or give the runtime an "
    return text % where + "environment that has it, or %s." % remedy


def load_error(error):
    """Why a runtime cannot be loaded, in one line."""
    text = "%s: %s" % (failures.name_of(error), failures.text_of(error))
    if isinstance(error, ImportError):
        text += missing_module("take it from the runtime's preload")
    return text


def _flusher():
    """A function that sends what a call printed. Python's and C's buffers are emptied first."""
    streams = [stream for stream in (sys.stdout, sys.stderr) if stream is not None]
    flush_out, flush_err = (stream.flush for stream in streams)
    lseek, end = os.lseek, os.SEEK_END
    try:
        import ctypes

        flush_c = ctypes.CDLL(None).fflush
        flush_c.argtypes, flush_c.restype = [ctypes.c_void_p], ctypes.c_int
    except (ImportError, OSError, AttributeError):
        flush_c = None

    def printed(worker, call):
        try:
            flush_out()
            flush_err()
            if flush_c is not None:
                flush_c(None)
            if lseek(1, 0, end):
                _send_print(worker, call, 1)
            if lseek(2, 0, end):
                _send_print(worker, call, 2)
        except (OSError, ValueError):
            # The call has closed its streams; nothing can be read from them.
            return

    return printed


def _send_print(worker, call, stream):
    size = os.fstat(stream).st_size
    lost = max(0, size - wire.PRINT_MAX)
    at = lost
    while at < size:
        part = os.pread(stream, wire.PART_MAX, at)
        if not part:
            break
        head = wire.PRINT_HEAD.pack(call, stream, lost)
        worker.append(wire.record(wire.PRINT, head + part))
        at += len(part)
        lost = 0
    os.ftruncate(stream, 0)


def limit_threads(cpus):
    """The number of threads of libraries that are loaded, where threadpoolctl is loaded."""
    threads = sys.modules.get("threadpoolctl")
    if threads is not None:
        threads.threadpool_limits(cpus)


def reseed():
    """Other random numbers than those of the zygote and of the other workers."""
    random = sys.modules.get("random")
    if random is not None:
        random.seed()
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()


def start(preloaded):
    """The whole life of a worker with its descriptors in place. Returns the exit code."""
    try:
        os.setpgid(0, 0)
    except PermissionError:
        # It leads a session already.
        pass
    for fd in (IN, OUT, WORD):
        os.set_inheritable(fd, False)
    page = mmap.mmap(WORD, 4096)
    worker = Worker(memoryview(page).cast("Q"))
    signal.signal(signal.SIGINT, worker.interrupted)
    signal.signal(signal.SIGALRM, worker.alarmed)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    faulthandler.enable(2)
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        if not preloaded:
            preload()
        error = None
    except BaseException as failed:
        error = load_error(failed)
    # From here on the node sees that this worker names its calls.
    worker.word[1] = _now()
    worker.append(wire.json_record(wire.HELLO, hello(error)))
    worker.flush()
    if error is not None:
        return 1
    gc.freeze()
    try:
        return worker.run()
    except wire.Garbage as garbage:
        os.write(2, ("starling worker: garbage from the node: %s\n" % garbage).encode())
        return wire.GARBAGE_EXIT
    except BrokenPipeError:
        return 0


def hello(error):
    version = "%d.%d.%d" % sys.version_info[:3]
    fields = {"protocol": wire.PROTOCOL, "language": "python", "version": version}
    fields["pid"] = os.getpid()
    if error is not None:
        fields["error"] = error
    return fields


def preload():
    """Loads the modules of the environment, then runs its init function."""
    import importlib

    for name in os.environ.get("STARLING_WORKER_PRELOAD", "").split(","):
        if name.strip():
            importlib.import_module(name.strip())
    path = os.environ.get("STARLING_WORKER_INIT")
    if path:
        function, _ = load_function((wire.FILE, wire.RAW, 0, os.fsencode(path)))
        function()

"""Parsl on Starling.

    parsl.load(Config(executors=[starling.parsl.Executor()], strategy="none"))
"""

from parsl.executors.base import ParslExecutor
from parsl.executors.errors import InvalidResourceSpecification
from parsl.monitoring.radios.multiprocessing import MultiprocessingQueueRadio
from parsl.utils import RepresentationMixin

from ._client import Client, client_or_cluster
from ._options import Options

# Resource specifications of Parsl, as options of calls. Memory is in MB there.
KNOWN = ("cores", "memory", "gpus", "resources", "priority", "retries", "time_limit", "name")


class Executor(ParslExecutor, RepresentationMixin):
    """Apps as calls. `resource_specification` has `cores`, `memory` (MB), `gpus`, `resources`,
    `priority`, `retries`, `time_limit` and `name`.

    `client` is an open client, `dir` the directory of an instance. Without both the executor
    connects to the default directory, else starts a local cluster.
    """

    def __init__(
        self, label="starling", client=None, dir=None, storage_access=None, working_dir=None
    ):
        ParslExecutor.__init__(self)
        self.label = label
        self.client, self.dir = client, dir
        self.storage_access = storage_access
        self.working_dir = working_dir
        self.remote_monitoring_radio = MultiprocessingQueueRadio()
        self._open = self._owned = None

    def start(self):
        if self.client is not None:
            self._open = self.client
        elif self.dir is not None:
            self._open = self._owned = Client(self.dir)
        else:
            self._open = self._owned = client_or_cluster()

    def submit(self, func, resource_specification, *args, **kwargs):
        if self._open is None:
            raise RuntimeError("the executor %r was not started" % self.label)
        options = _options(resource_specification or {})
        return self._open._submit(options, func, args, kwargs)

    def shutdown(self):
        owned, self._owned = self._owned, None
        self._open = None
        if owned is not None:
            owned.close()
        super().shutdown()

    def monitor_resources(self):
        """Calls of a worker run in its process; Parsl's monitor would fork it."""
        return False


def _options(specification):
    unknown = {name for name in specification if name not in KNOWN}
    if unknown:
        text = "Starling knows %s" % ", ".join(KNOWN)
        raise InvalidResourceSpecification(unknown, text)
    given = dict(specification)
    if "cores" in given:
        given["cpus"] = given.pop("cores")
    if isinstance(given.get("memory"), int):
        given["memory"] *= 10**6
    try:
        return Options().changed(given)
    except ValueError as error:
        raise InvalidResourceSpecification(set(specification), str(error)) from error

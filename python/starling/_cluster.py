"""A cluster of this machine that ends with its driver."""

import os
import subprocess
import sys
import tempfile
import weakref

from ._binary import find_binary as find_binary
from ._client import Client, _clusters
from ._errors import ClusterError

# Ends the cluster when its standard input ends, however the driver has ended.
_KEEPER = """
import os, shutil, signal, subprocess, sys
binary, directory, *up = sys.argv[1:]
for name in ("SIGINT", "SIGTERM", "SIGHUP"):
    signal.signal(getattr(signal, name), signal.SIG_IGN)
def starling(*arguments):
    return subprocess.run([binary, *arguments, "--dir", directory + "/cluster"],
                          stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE)
started = starling("up", *up)
text = started.stderr.decode("utf-8", "replace").strip().replace("\\n", "; ")
os.write(1, (f"{started.returncode} {text}\\n").encode("utf-8", "replace"))
os.close(1)
sys.stdin.buffer.read()
starling("down")
shutil.rmtree(directory, ignore_errors=True)
"""


class LocalCluster:
    """Nodes of this machine in a directory of their own. All of it ends with the driver.

    `slots` is the number of calls that each node runs at a time. `replicas` is the number of nodes
    that keep each record, at least; 2 where there are two nodes. With 1, calls are faster, and a
    node that dies takes part of each job with it. `resources` are pools of each node
    in the words of `starling up --resource`, such as `["gpus=[0,1]", "licence=sum(2)"]`.
    """

    def __init__(self, nodes=1, slots=None, *, replicas=None, resources=(), binary=None):
        if nodes < 1 or (slots is not None and slots < 1):
            raise ValueError("a cluster has at least one node, and a node at least one slot")
        if replicas is not None and not 1 <= replicas <= nodes:
            raise ValueError("replicas=%r: there are %d nodes" % (replicas, nodes))
        self._keeper, self._pid = None, os.getpid()
        self.binary = binary or find_binary()
        self._directory = tempfile.mkdtemp(prefix="starling-local-")
        self.dir = os.path.join(self._directory, "cluster")
        self.nodes = nodes
        self._entered = False
        self._clients = weakref.WeakSet()
        if slots is None:
            # Under Slurm or taskset a program has some of the cpus.
            slots = max(1, len(os.sched_getaffinity(0)) // nodes)
        self.slots = slots
        command = [sys.executable, "-I", "-c", _KEEPER, self.binary, self._directory]
        command += ["--nodes", str(nodes), "--slots", str(slots)]
        if replicas is not None:
            command += ["--replicas", str(replicas)]
        for pool in (resources,) if isinstance(resources, str) else resources:
            command += ["--resource", pool]
        self._keeper = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        _clusters.add(self)
        code, _, text = self._keeper.stdout.readline().decode("utf-8", "replace").partition(" ")
        if code != "0":
            self.close()
            raise ClusterError("%s up: %s" % (self.binary, text.strip() or "it ended at once"))

    def client(self, **options):
        """A client of this cluster. Outside a `with` of the cluster, its close ends the cluster."""
        client = Client(self.dir, **options)
        client._cluster = self
        self._clients.add(client)
        return client

    def _client_closed(self):
        if not self._entered:
            self.close()

    def close(self):
        """Stops the nodes and removes their directory. Returns when both is done."""
        if self._keeper is None or self._pid != os.getpid():
            return
        # Their requests to stopped nodes would wait.
        for client in list(self._clients):
            client._cluster = None
            client.close()
        keeper, self._keeper = self._keeper, None
        keeper.stdin.close()
        keeper.stdout.close()
        keeper.wait()

    def __enter__(self):
        self._entered = True
        return self

    def __exit__(self, *_):
        self.close()

    def _repr_html_(self):
        import html

        state = "closed" if self._keeper is None else "runs"
        fields = (("state", state), ("nodes", self.nodes), ("slots of each", self.slots))
        fields += (("directory", self.dir), ("program", self.binary))
        cell = "<tr><th>%s</th><td>%s</td></tr>"
        rows = "".join(cell % (name, html.escape(str(value))) for name, value in fields)
        return "<table>%s</table>" % rows

    def __repr__(self):
        state = "closed" if self._keeper is None else self.dir
        text = "<LocalCluster of %d nodes with %d slots each, %s, %s>"
        return text % (self.nodes, self.slots, state, self.binary)

"""Measures calls here, beside the executors that are installed: `python -m starling.bench`.

The contenders alternate, so that other load of the machine meets all of them. A library that is not
installed is skipped with the reason.
"""

import argparse
import concurrent.futures
import json
import multiprocessing
import os
import statistics
import sys
import time

from . import _pickling
from ._cluster import LocalCluster
from ._map import as_completed

PAUSE = 0.2


def noop():
    return None


def add(*values):
    return sum(values) + 1


class Starling:
    """Calls of a local cluster."""

    name = "starling"

    def __init__(self, nodes, slots, replicas=None):
        self.cluster = LocalCluster(nodes=nodes, slots=slots, replicas=replicas)
        self.client = self.cluster.client()
        self.submit = self.client.submit

    def calls(self, number):
        for future in as_completed(self.client.map(noop_of, range(number))):
            future.result()

    def chain(self, length):
        future = self.submit(add, 0)
        for _ in range(length - 1):
            future = self.submit(add, future)
        return future.result()

    def tree(self, width, levels):
        """Each task of a level but the last is read by `width` tasks of the next."""
        futures = [self.submit(add)]
        all_futures = list(futures)
        for _ in range(levels):
            futures = [self.submit(add, future) for future in futures for _ in range(width)]
            all_futures += futures
        return sum(future.result() for future in all_futures)

    def processes(self):
        """The processes of the cluster, by role."""
        return cluster_processes(self.cluster.dir)

    def close(self):
        self.client.close()
        self.cluster.close()


class Pool:
    """Any executor of `concurrent.futures`: what passes values does so through this process."""

    def __init__(self, name, executor):
        self.name, self.executor, self.submit = name, executor, executor.submit

    def calls(self, number):
        futures = [self.submit(noop) for _ in range(number)]
        for future in concurrent.futures.as_completed(futures):
            future.result()

    def chain(self, length):
        value = 0
        for _ in range(length):
            value = self.submit(add, value).result()
        return value

    def close(self):
        self.executor.shutdown()


def noop_of(_):
    return None


def process_pool(slots):
    # The client has threads, so its process is not forked.
    context = multiprocessing.get_context("spawn")
    return Pool(
        "ProcessPoolExecutor", concurrent.futures.ProcessPoolExecutor(slots, mp_context=context)
    )


def loky(slots):
    import loky

    return Pool("loky", loky.ProcessPoolExecutor(slots))


def dask(slots):
    from distributed import Client, LocalCluster

    cluster = LocalCluster(n_workers=slots, threads_per_worker=1, dashboard_address=None)
    return Pool("dask", Client(cluster).get_executor(pure=False))


def ray(slots):
    import ray

    ray.init(num_cpus=slots, include_dashboard=False, log_to_driver=False)
    from ray.util import ActorPool  # noqa: F401 (a whole installation)

    return Pool("ray", RayExecutor(ray))


class RayExecutor(concurrent.futures.Executor):
    def __init__(self, ray):
        self.ray = ray
        self.run = ray.remote(lambda fn, *args: fn(*args))

    def submit(self, fn, /, *args):
        return self.run.remote(fn, *args).future()

    def shutdown(self, wait=True):
        self.ray.shutdown()


def parsl(slots):
    from parsl.executors import HighThroughputExecutor  # noqa: F401

    raise ImportError("parsl has a benchmark of its own: parsl-perf")


def executorlib(slots):
    from executorlib import SingleNodeExecutor

    return Pool("executorlib", SingleNodeExecutor(max_workers=slots))


PEERS = {
    "ProcessPoolExecutor": process_pool,
    "loky": loky,
    "dask": dask,
    "ray": ray,
    "parsl": parsl,
    "executorlib": executorlib,
}


# CPU of processes.


def cpu_s(pid):
    with open("/proc/%d/stat" % pid) as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cluster_processes(directory):
    """(pid, role) of the nodes of a local cluster and of all that they have started."""
    parents, commands = {}, {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % name) as file:
                parents[int(name)] = int(file.read().rpartition(")")[2].split()[1])
            with open("/proc/%s/cmdline" % name, "rb") as file:
                commands[int(name)] = file.read().replace(b"\0", b" ").decode("utf-8", "replace")
        except (OSError, IndexError):
            # It has ended.
            continue
    nodes = {pid for pid, text in commands.items() if directory in text and " node " in text}
    found = [(pid, "nodes") for pid in nodes]
    for pid in commands:
        above = parents.get(pid)
        while above in parents and above not in nodes:
            above = parents[above]
        if above in nodes and pid not in nodes:
            found.append((pid, "workers" if "worker.zip" in commands[pid] else "spawners"))
    return found


def cpu_by_role(contender):
    found = {"driver": time.process_time()}
    for pid, role in getattr(contender, "processes", list)():
        try:
            found[role] = found.get(role, 0) + cpu_s(pid)
        except OSError:
            # It has ended.
            continue
    return found


# Measures.


def calls_per_s(contender, number):
    before, began = cpu_by_role(contender), time.monotonic()
    contender.calls(number)
    took = time.monotonic() - began
    after = cpu_by_role(contender)
    cpu = {role: (used - before.get(role, 0)) / number * 1e6 for role, used in after.items()}
    found = {"calls_per_s": number / took}
    if hasattr(contender, "processes"):
        found["cpu_us_per_call"] = {role: round(used, 1) for role, used in cpu.items()}
        found["cpu_us_per_call"]["all"] = round(sum(cpu.values()), 1)
    return found


def latencies(contender, number):
    found = []
    for _ in range(number):
        began = time.perf_counter()
        contender.submit(noop).result()
        found.append((time.perf_counter() - began) * 1e3)
    found.sort()
    return {"one_call_p50_ms": statistics.median(found), "one_call_p99_ms": found[number * 99 // 100]}


def of_graphs(contender, chain, levels):
    began = time.monotonic()
    assert contender.chain(chain) == chain
    found = {"chain_s": time.monotonic() - began}
    if hasattr(contender, "tree"):
        began = time.monotonic()
        contender.tree(10, levels)
        found["tree_of_%d_s" % sum(10**k for k in range(levels + 1))] = time.monotonic() - began
    return found


def measure(contender, options):
    found = calls_per_s(contender, options.calls)
    found.update(latencies(contender, options.single))
    found.update(of_graphs(contender, options.chain, options.levels))
    return found


def middle(rounds):
    """The median of each figure over the rounds."""
    if isinstance(rounds[0], dict):
        return {name: middle([one[name] for one in rounds if name in one]) for name in rounds[0]}
    return round(statistics.median(rounds), 3)


def run(options):
    starling = Starling(options.nodes, options.slots, options.replicas)
    skipped, contenders = {}, [starling]
    try:
        for name in options.peers:
            try:
                contenders.append(PEERS[name](options.nodes * options.slots))
            except ImportError as error:
                skipped[name] = str(error)
            except Exception as error:
                # It is there, and does not start.
                skipped[name] = "%s: %s" % (type(error).__name__, error)
        rounds = {contender.name: [] for contender in contenders}
        for contender in contenders:
            contender.calls(min(options.calls, 500))
        for _ in range(options.rounds):
            for contender in contenders:
                rounds[contender.name].append(measure(contender, options))
                time.sleep(PAUSE)
    finally:
        for contender in contenders:
            contender.close()
    return {
        "nodes": options.nodes,
        "slots": options.slots,
        "replicas": options.replicas,
        "load": os.getloadavg()[0],
        "figures": {name: middle(found) for name, found in rounds.items()},
        "skipped": skipped,
    }


def show(found):
    fields = (found["nodes"], found["slots"], found["replicas"], found["load"])
    print("%d nodes of %d slots, %d replicas, load %.1f" % fields)
    for name, figures in found["figures"].items():
        print(name)
        for figure, value in figures.items():
            print("    %-20s %s" % (figure, value))
    for name, reason in found["skipped"].items():
        print("%s: skipped: %s" % (name, reason))


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m starling.bench", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--slots", type=int, default=2, help="of each node")
    text = "nodes that keep each record, at least; 2 unless there is one node"
    parser.add_argument("--replicas", type=int, help=text)
    parser.add_argument("--calls", type=int, default=10_000, help="no-op calls of a round")
    parser.add_argument("--single", type=int, default=200, help="calls one after another")
    parser.add_argument("--chain", type=int, default=1000)
    parser.add_argument("--levels", type=int, default=4, help="of a tree, ten times wider each")
    parser.add_argument("--rounds", type=int, default=3)
    names = ", ".join(PEERS)
    parser.add_argument("--peers", nargs="*", default=list(PEERS), choices=list(PEERS), help=names)
    options = parser.parse_args(argv)
    numbers = (options.nodes, options.slots, options.calls, options.single)
    numbers += (options.chain, options.levels, options.rounds)
    if min(numbers) < 1:
        parser.error("all numbers are at least 1")
    if options.replicas is None:
        options.replicas = min(2, options.nodes)
    if not 1 <= options.replicas <= options.nodes:
        parser.error("--replicas: from 1 to the number of nodes")
    found = run(options)
    print(json.dumps(found)) if options.json else show(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
_pickling.ship(__name__)

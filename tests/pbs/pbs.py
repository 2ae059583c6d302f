#!/usr/bin/env python3
"""A small PBS over a directory: qsub, qstat, qdel and pbsdsh, by the name of the link.

FAKE_PBS_DIR has its state. FAKE_PBS_VNODES is the number of machines. Batch jobs start in the order
of their submission. A file `stopped` there keeps them from starting. A file `slow` has the seconds
that qsub waits between a submission and its answer.
"""

import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
import time

ROOT = os.environ.get("FAKE_PBS_DIR", "")
VNODES = int(os.environ.get("FAKE_PBS_VNODES", "2"))
KILL_DELAY_S = 10


class State:
    """The batch jobs, under a lock."""

    def __enter__(self):
        os.makedirs(ROOT, exist_ok=True)
        self.lock = open(os.path.join(ROOT, "lock"), "w")
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        try:
            with open(os.path.join(ROOT, "jobs")) as file:
                self.jobs = json.load(file)
        except FileNotFoundError:
            self.jobs = {}
        return self

    def __exit__(self, *_):
        path = os.path.join(ROOT, "jobs")
        with open(path + ".new", "w") as file:
            json.dump(self.jobs, file)
        os.rename(path + ".new", path)
        self.lock.close()


def fail(text, code):
    print(text, file=sys.stderr)
    sys.exit(code)


def read_options(words, job):
    """Reads options of a command line or of a script; returns the other words."""
    words, rest = list(words), []
    while words:
        word = words.pop(0)
        if word == "-h":
            job["held"] = True
        elif word in ("-N", "-l", "-j", "-o", "-q", "-A"):
            if not words:
                fail(f"qsub: option requires an argument -- {word}", 2)
            value = words.pop(0)
            if word == "-l":
                name, _, amount = value.partition("=")
                job["resources"][name] = amount
            else:
                job[word] = value
        elif word.startswith("-"):
            fail(f"qsub: invalid option {word}", 2)
        else:
            rest.append(word)
    return rest


def seconds(text):
    total = 0
    for part in text.split(":"):
        total = total * 60 + int(part)
    return total


def qsub(words):
    job = {"resources": {}, "held": False}
    script = read_options(words, {"resources": {}})
    if len(script) != 1 or not os.path.isfile(script[0]):
        fail("qsub: script file: No such file or directory", 1)
    with open(script[0]) as file:
        for line in file:
            if line.startswith("#PBS "):
                read_options(shlex.split(line[5:]), job)
    read_options(words, job)
    if job.get("-q", "workq") != "workq":
        fail("qsub: Unknown queue", 170)
    select = job["resources"].get("select", "1").split(":")[0]
    if int(select) > VNODES:
        fail("qsub: Job violates queue and/or server resource limits", 188)
    with State() as state:
        number = len(state.jobs) + 1
        job_id = f"{number}.fake"
        state.jobs[job_id] = {
            "Job_Name": job.get("-N", "STDIN"),
            "job_state": "H" if job["held"] else "Q",
            "Resource_List": job["resources"],
            "script": os.path.abspath(script[0]),
            "output": job.get("-o", os.path.join(ROOT, f"{job_id}.out")),
            "nodes": int(select),
            "order": number,
        }
    here = [sys.executable, os.path.realpath(__file__), "__run", job_id]
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    subprocess.Popen(here, start_new_session=True, stderr=subprocess.DEVNULL, **quiet)
    try:
        with open(os.path.join(ROOT, "slow")) as file:
            time.sleep(float(file.read()))
    except FileNotFoundError:
        pass
    print(job_id)


def take_nodes(job_id):
    """The vnodes of a batch job that may start now, or None; an ended one ends this process."""
    with State() as state:
        job = state.jobs[job_id]
        if job["job_state"] == "F":
            sys.exit(0)
        if job["job_state"] != "Q" or os.path.exists(os.path.join(ROOT, "stopped")):
            return None
        others = state.jobs.values()
        if any(it["job_state"] == "Q" and it["order"] < job["order"] for it in others):
            return None
        taken = {at for it in others if it["job_state"] == "R" for at in it["vnodes"]}
        free = [at for at in range(VNODES) if at not in taken]
        if len(free) < job["nodes"]:
            return None
        job.update(job_state="R", vnodes=free[: job["nodes"]], stime=int(time.time()))
        return job


def run(job_id):
    """The process beside one batch job: it waits, starts the script, and ends it in time."""
    while True:
        if not os.path.isdir(ROOT):
            return
        job = take_nodes(job_id)
        if job:
            break
        time.sleep(0.1)
    nodefile = os.path.join(ROOT, f"{job_id}.nodes")
    with open(nodefile, "w") as file:
        file.writelines(f"vnode{at}\n" for at in job["vnodes"])
    more = {"PBS_JOBID": job_id, "PBS_NODEFILE": nodefile, "PBS_ENVIRONMENT": "PBS_BATCH"}
    environment = {**os.environ, **more, "PBS_JOBNAME": job["Job_Name"]}
    with open(job["output"], "w") as output:
        child = subprocess.Popen(
            ["/bin/bash", job["script"]],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            env=environment, start_new_session=True,
        )
    with State() as state:
        state.jobs[job_id]["pid"] = child.pid
    walltime = seconds(job["Resource_List"].get("walltime", "0"))
    end = time.time() + walltime if walltime else float("inf")
    status, killed = None, None
    while child.poll() is None:
        if not os.path.isdir(ROOT):
            os.killpg(child.pid, signal.SIGKILL)
            return
        if time.time() >= end and killed is None:
            status, killed = -29, time.time()
            os.killpg(child.pid, signal.SIGTERM)
        elif killed is not None and time.time() >= killed + KILL_DELAY_S:
            os.killpg(child.pid, signal.SIGKILL)
        time.sleep(0.1)
    code = child.returncode
    code = 256 - code if code < 0 else code
    with State() as state:
        state.jobs[job_id].update(
            job_state="F", Exit_status=code if status is None else status
        )


def qstat(words):
    if words == ["--version"]:
        print("pbs_version = fake")
        return
    if words[:3] != ["-f", "-F", "json"]:
        fail("qstat: only -f -F json is known here", 2)
    with open(os.path.join(ROOT, "listings"), "a") as file:
        file.write(f"{time.time()}\n")
    with State() as state:
        jobs = {
            job_id: job
            for job_id, job in state.jobs.items()
            if job["job_state"] != "F" or "-x" in words
        }
    print(json.dumps({"timestamp": int(time.time()), **({"Jobs": jobs} if jobs else {})}))


def qdel(words):
    with State() as state:
        for job_id in words:
            job = state.jobs.get(job_id)
            if job is None:
                fail(f"qdel: Unknown Job Id {job_id}", 153)
            if job["job_state"] == "R":
                os.killpg(job["pid"], signal.SIGTERM)
            elif job["job_state"] != "F":
                job.update(job_state="F", Exit_status=271)


def pbsdsh(words):
    command = words[1:] if words[:1] == ["--"] else words
    with open(os.environ["PBS_NODEFILE"]) as file:
        nodes = file.read().split()
    children = [
        subprocess.Popen(command, env={**os.environ, "PBS_NODENUM": str(at)})
        for at in range(len(nodes))
    ]
    sys.exit(max(abs(child.wait()) for child in children))


def main():
    name, words = os.path.basename(sys.argv[0]), sys.argv[1:]
    if words[:1] == ["__run"]:
        return run(words[1])
    {"qsub": qsub, "qstat": qstat, "qdel": qdel, "pbsdsh": pbsdsh}[name](words)


main()

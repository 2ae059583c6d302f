"""Whether this process may be forked now."""

import os

# Threads that survive a fork by their library's own care, by the name of the thread.
SAFE_THREADS = ("jemalloc_bg_thd",)
GPU_DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/render")


def fork_obstacle():
    """(reason, text), or None if nothing speaks against a fork."""
    threads = _threads()
    if threads:
        return "threads", "threads that a fork would lose: " + ", ".join(sorted(threads)[:8])
    device = _gpu()
    if device:
        return "gpu", "%s is open; a GPU context does not survive a fork" % device
    return None


def _threads():
    own = str(os.getpid())
    found = []
    try:
        ids = os.listdir("/proc/self/task")
    except OSError:
        return found
    for tid in ids:
        if tid == own:
            continue
        try:
            with open("/proc/self/task/%s/comm" % tid) as file:
                name = file.read().strip()
        except OSError:
            # The thread has just ended.
            continue
        if name not in SAFE_THREADS:
            found.append(name)
    return found


def _gpu():
    try:
        names = os.listdir("/proc/self/fd")
    except OSError:
        return None
    for name in names:
        try:
            target = os.readlink("/proc/self/fd/" + name)
        except OSError:
            continue
        if target.startswith(GPU_DEVICES):
            return target
    return None

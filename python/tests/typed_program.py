"""A program as users write it, for the check of types; it is never run."""

import concurrent.futures
from typing import assert_type

import starling


def load(path: str) -> list[int]:
    return [len(path)]


def total(numbers: list[int], scale: float = 1.0) -> float:
    return sum(numbers) * scale


@starling.task
def plain(n: int) -> str:
    return str(n)


@starling.task(cpus=2, memory="1GiB")
def wide(n: int) -> bytes:
    return bytes(n)


def calls(c: starling.Client) -> None:
    f = c.submit(load, "a")
    assert_type(f, starling.Future[list[int]])
    g = c.submit(total, f, scale=2)
    assert_type(g.result(timeout=5), float)
    assert_type(g.task, str | None)
    assert_type(c.options(retries=2).submit(total, [1]).exception(), BaseException | None)
    as_usual: concurrent.futures.Future[float] = g
    as_usual.cancel()
    g.cancel(kill=True)
    assert_type(list(c.map(load, ["a", "b"]).results()), list[list[int]])
    for ended in starling.as_completed([f, f]):
        assert_type(ended.result(), list[int])
    assert_type(starling.gather([g, g]), list[float])
    assert_type(c.put(b"x"), starling.Future[bytes])
    done, _ = starling.wait(c.map(load, ["a"]))
    starling.progress(done).counts["load"]
    assert_type(c.job, int | None)


async def waits(c: starling.Client) -> None:
    assert_type(await c.submit(total, [1]), float)
    async for ended in starling.as_completed(c.map(load, ["a"])):
        assert_type(ended, starling.Future[list[int]])


def tasks() -> None:
    assert_type(plain(1), str)
    assert_type(plain.submit(1).result(), str)
    assert_type(wide.options(cpus=4).submit(1), starling.Future[bytes])


def clusters() -> None:
    with starling.LocalCluster(nodes=2) as cluster, cluster.client() as c:
        calls(c)
    runtime = starling.Runtime(environment="env", preload=["numpy"], memory="1GiB")
    with starling.Client(runtime=runtime) as c, starling.Executor(4, client=c) as executor:
        assert_type(executor.submit(total, [1]).result(), float)
    try:
        starling.attach(5).futures()
    except starling.CannotPickle as error:
        assert_type(error.path, str | None)


def inside() -> None:
    task = starling.current_task()
    if task is not None:
        assert_type(task.attempt, int)
    starling.context()["x"] = 1

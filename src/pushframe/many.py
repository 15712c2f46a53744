"""Many bursts, each an order of its own: on the cores of a machine, or on a Dask cluster.

An order that fails is reported and the others go on. A worker that dies takes its burst with it,
which is done again. Products appear whole or not at all, so that stopping and starting again
loses at most the bursts that were being worked on.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from types import FrameType
from typing import Any

from .deliver import Delivery, Order, deliver
from .errors import FileError, MissingPackageError, PushframeError

GRACE_S = 5.0  # for a worker to end by itself when its parent is gone
MAX_DEATHS = 3  # of workers over one burst, before it is given up


@dataclass(frozen=True)
class Result:
    """What became of one order: a delivery, or the error in words; seconds that it took."""

    order: Order
    delivery: Delivery | None
    error: str | None = None
    seconds: float = 0.0


def fulfil(order: Order) -> Result:
    """Work on one order; whatever is wrong with its burst becomes words."""
    begin = time.perf_counter()
    delivery = error = None
    try:
        delivery = deliver(order)
    except PushframeError as mistake:
        error = str(mistake)
    except Exception as surprise:  # a burst must not take the others down with it
        error = f"{order.burst}: {type(surprise).__name__}: {surprise}"
    return Result(order, delivery, error, time.perf_counter() - begin)


def run_here(orders: Sequence[Order], jobs: int) -> Iterator[Result]:
    """Results of orders as they finish, worked on by `jobs` processes of this machine."""
    if jobs == 1:
        yield from map(fulfil, orders)
        return
    waiting, suspects = deque(orders), deque[Order]()
    deaths: dict[Order, int] = {}
    while waiting or suspects:
        # where a worker died, those in flight go on alone: then it is known whose burst kills
        queue, width = (waiting, jobs) if waiting else (suspects, 1)
        for order, result in _pooled(queue, width, jobs):
            if result is not None:
                yield result
                continue
            deaths[order] = deaths.get(order, 0) + 1
            if deaths[order] < MAX_DEATHS:
                suspects.append(order)
            else:
                yield Result(order, None, _killed(order, deaths[order]))


def _pooled(queue: deque[Order], width: int, jobs: int) -> Iterator[tuple[Order, Result | None]]:
    """Orders of a queue with their results, until it is empty or a worker dies.

    The result is None for those that were in flight then.
    """
    pool = ProcessPoolExecutor(
        width, multiprocessing.get_context("spawn"), initializer=_prepare, initargs=(jobs,)
    )
    others = set(multiprocessing.active_children())
    flying: dict[Future[Result], Order] = {}
    try:
        while queue or flying:
            while queue and len(flying) < width:
                order = queue.popleft()
                flying[pool.submit(fulfil, order)] = order
            done, _ = wait(flying, return_when=FIRST_COMPLETED)
            broken = False
            for future in done:
                order = flying.pop(future)
                try:
                    yield order, future.result()
                except BrokenProcessPool:
                    broken = True
                    yield order, None
            if broken:
                for order in flying.values():
                    yield order, None
                return
        pool.shutdown()
    except BrokenProcessPool:  # on submission: the order it was meant for is in no future
        queue.appendleft(order)
        for order in flying.values():
            yield order, None
    finally:
        _stop(pool, others)


def _prepare(jobs: int) -> None:
    """In a worker: a fair share of the cores; the parent says when to stop, and drafts go then."""
    import torch

    torch.set_num_threads(max(1, (os.cpu_count() or 1) // jobs))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Wait for the end of the parent, which may be killed without a word, and follow it."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)  # drafts go
    time.sleep(GRACE_S)
    os._exit(1)  # the pool catches what SIGTERM raises in the midst of a burst


def _leave(_number: int, _frame: FrameType | None) -> None:
    sys.exit(1)


def _stop(pool: ProcessPoolExecutor, others: set[multiprocessing.process.BaseProcess]) -> None:
    """End the workers of a pool, those in the midst of a burst too; `others` are not its own."""
    pool.shutdown(wait=False, cancel_futures=True)
    for child in set(multiprocessing.active_children()) - others:
        child.terminate()
    pool.shutdown()


def run_on_cluster(orders: Sequence[Order], address: str) -> Iterator[Result]:
    """Results of orders as they finish, on the workers of a Dask scheduler.

    Paths must mean the same on all machines. A worker that dies is Dask's to replace: its burst
    goes to another one, up to three times.
    """
    client = _connect(address)
    try:
        futures = {
            client.submit(fulfil, order, pure=False, key=f"pushframe-{k}-{order.burst.name}"): order
            for k, order in enumerate(orders)
        }
        from distributed import KilledWorker, as_completed

        # in its own loop, whatever client the process has besides
        for future in as_completed(futures, loop=client.loop):
            try:
                yield future.result()
            except KilledWorker:
                yield Result(futures[future], None, _killed(futures[future], MAX_DEATHS))
    finally:
        client.close()  # what nobody waits for any more is cancelled


def _connect(address: str) -> Any:
    try:
        from distributed import Client
    except ImportError as error:
        raise MissingPackageError(
            "expected the package distributed for --cluster, got none: "
            "pip install 'pushframe[cluster]'"
        ) from error
    try:
        return Client(address, timeout="10s")
    except (OSError, ValueError) as error:
        raise FileError(
            f"expected a Dask scheduler at {address}, got none that answers: start one "
            "(`dask scheduler`), or correct --cluster"
        ) from error


def _killed(order: Order, times: int) -> str:
    return (
        f"{order.burst}: expected a worker to finish it, got {times} that died over it: "
        "look at its size and the memory of the workers"
    )

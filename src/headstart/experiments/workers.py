"""Where runs are done: in this process, in others (joblib), on a cluster (Ray).

A run whose process dies, for want of memory perhaps, is told and tried once more; the others go on.
What a run raises is no death: `work` returns that like any other end.
"""

from __future__ import annotations

import os
import re
import signal
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import joblib
from joblib.externals.loky.process_executor import TerminatedWorkerError

from headstart.errors import HeadstartError, unknown
from headstart.experiments.spec import ResultRow, Run
from headstart.kernels.allocator import keep_freed

POLL_PARENT_SECONDS = 1.0
"""How often a worker checks that the process that started it is still there."""


class Done(NamedTuple):
    """A run that ended: its last row, or, where it broke down, what was raised."""

    run: Run
    row: ResultRow | None
    broken: str = ""


RunFunction = Callable[[Run], Done]
Tell = Callable[[Run, str], None]
"""Says something about a run that has not ended."""


def side_by_side(
    todo: list[Run], work: RunFunction, *, jobs: int | None, backend: str, tell: Tell
) -> Iterator[Done]:
    """The runs as they end, `jobs` at a time; None is as many as there is room for."""
    if backend not in BACKENDS:
        raise unknown("backend", backend, BACKENDS)
    return BACKENDS[backend](todo, work, jobs, tell)


def cores(runs: list[Run]) -> int:
    """How many of these runs fit on this machine at a time."""
    return max(1, joblib.cpu_count() // _threads_per_run(runs))


def _threads_per_run(runs: list[Run]) -> int:
    return max((one.threads for one in runs), default=1)


def _on_this_machine(
    todo: list[Run], work: RunFunction, jobs: int | None, tell: Tell
) -> Iterator[Done]:
    """A process that dies ends joblib's others too; each run they were at is tried by itself."""
    jobs = jobs or cores(todo)
    if jobs == 1:
        yield from map(work, todo)
        return
    waiting = {one.key: one for one in todo}
    with tempfile.TemporaryDirectory(prefix="headstart-") as folder:
        begun = Path(folder)
        while waiting:
            try:
                for done in _parallel(jobs, work, list(waiting.values()), begun):
                    del waiting[done.run.key]
                    yield done
            except TerminatedWorkerError as error:
                suspects = [
                    waiting.pop(path.name)
                    for path in sorted(begun.iterdir())
                    if path.name in waiting
                ]
                if not suspects:
                    raise HeadstartError(
                        f"Worker processes do not start: {_exit_codes(error)}."
                    ) from error
                for one in suspects:
                    tell(
                        one, f"a worker process died ({_exit_codes(error)}); tried again, by itself"
                    )
                    yield _retry_by_itself(work, one, begun)


def _retry_by_itself(work: RunFunction, one: Run, begun: Path) -> Done:
    try:
        # joblib starts no process for n_jobs=1.
        return next(_parallel(2, work, [one], begun))
    except TerminatedWorkerError as error:
        return Done(
            one, None, f"its process died twice ({_exit_codes(error)}), perhaps for want of memory"
        )


def _parallel(jobs: int, work: RunFunction, todo: list[Run], begun: Path) -> Iterator[Done]:
    parallel = joblib.Parallel(
        n_jobs=jobs, return_as="generator_unordered", initializer=_tie, initargs=(os.getpid(),)
    )
    return parallel(joblib.delayed(_marked)(work, one, begun) for one in todo)


def _marked(work: RunFunction, one: Run, begun: Path) -> Done:
    (begun / one.key).touch()
    return work(one)


def _exit_codes(error: Exception) -> str:
    """loky's message has a paragraph; the codes are what matters."""
    found = re.search(r"\{(.+?)\}", str(error))
    return found[1] if found else type(error).__name__


def _tie(parent: int) -> None:
    """A worker leaves interrupts to its parent, and does not outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    keep_freed()

    def poll() -> None:
        while os.getppid() == parent:
            time.sleep(POLL_PARENT_SECONDS)
        # What it was at is on disk, as far as it got.
        os._exit(1)

    threading.Thread(target=poll, daemon=True).start()


def _on_ray(todo: list[Run], work: RunFunction, jobs: int | None, tell: Tell) -> Iterator[Done]:
    """A task for each run, never more than `jobs` at a time; Ray says whose process died.

    Not joblib's own Ray backend: it hands back nothing before all is done, and a process that dies
    ends the others' work.
    """
    ray, mine = _connected((jobs or cores(todo)) * _threads_per_run(todo))
    try:
        _refuse_unless_there_is_room(ray, todo)
        room = jobs or max(1, int(ray.cluster_resources().get("CPU", 1)) // _threads_per_run(todo))
        there = ray.remote(max_retries=0)(_in_folder)
        queue, running, died = deque(todo), dict[Any, Run](), set[str]()
        while queue or running:
            while queue and len(running) < room:
                one = queue.popleft()
                needs = {"num_cpus": one.threads, "num_gpus": _gpus(one)}
                running[there.options(**needs).remote(os.getcwd(), work, one)] = one
            (ended,), _ = ray.wait(list(running), num_returns=1)
            one = running.pop(ended)
            try:
                yield ray.get(ended)
            except ray.exceptions.RayError as error:
                reason = type(error).__name__
                if one.key in died:
                    yield Done(
                        one, None, f"its process died twice ({reason}), perhaps for want of memory"
                    )
                else:
                    died.add(one.key)
                    queue.append(one)
                    tell(one, f"its process died ({reason}); tried again")
    finally:
        if mine:
            ray.shutdown()


def _gpus(one: Run) -> int:
    return int(one.device.startswith("cuda"))


def _refuse_unless_there_is_room(ray: Any, todo: list[Run]) -> None:
    """Ray would wait for ever for a machine that nobody has."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    for one in todo:
        if not any(
            node.get("CPU", 0) >= one.threads and node.get("GPU", 0) >= _gpus(one) for node in nodes
        ):
            raise HeadstartError(
                f"No machine of the Ray cluster has the {one.threads} CPUs and {_gpus(one)} GPUs "
                "that a run takes: lower --threads, or choose another --device."
            )


def _in_folder(folder: str, work: RunFunction, one: Run) -> Done:
    """Paths mean on the cluster what they mean here."""
    if os.path.isdir(folder):
        os.chdir(folder)
    keep_freed()
    return work(one)


def _connected(jobs: int) -> tuple[Any, bool]:
    """Ray, on the cluster that RAY_ADDRESS names or on this machine; and whether we started it."""
    try:
        import ray
    except ImportError as error:
        raise HeadstartError("Ray is not installed: pip install 'headstart[scale]'.") from error
    if ray.is_initialized():
        return ray, False
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address := os.environ.get("RAY_ADDRESS"):
        try:
            ray.init(**quiet)
        except (ConnectionError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise HeadstartError(
                f"No Ray cluster answers at RAY_ADDRESS={address} ({reason}): "
                "start it with `ray start --head`, and if it asks for a token, set that up here "
                "as Ray's documentation has it; or unset RAY_ADDRESS to run on this machine."
            ) from error
    else:
        ray.init("local", num_cpus=jobs, include_dashboard=False, **quiet)
    return ray, True


BACKENDS: dict[str, Callable[[list[Run], RunFunction, int | None, Tell], Iterator[Done]]] = {
    "processes": _on_this_machine,
    "ray": _on_ray,
}

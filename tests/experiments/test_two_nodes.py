"""A Ray cluster of two nodes, one of which dies midway: each row arrives once, none is lost."""

from __future__ import annotations

import io
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from headstart.experiments.execute import execute
from headstart.experiments.store import Store
from tests.experiments.conftest import runs, timeless

pytestmark = [
    pytest.mark.slow,
    # Ray leaves files open, and its older versions import pkg_resources.
    pytest.mark.filterwarnings(
        "ignore::pytest.PytestUnraisableExceptionWarning",
        "ignore::ResourceWarning",
        "ignore:pkg_resources is deprecated:DeprecationWarning",
    ),
]
STEPS = 1200
"""Steps of a run: long enough that the second node dies within one."""
DEADLINE = 600.0


@pytest.fixture
def two_nodes() -> Iterator[Any]:
    """A head and a second node, one CPU each, on this machine, by Ray's own cluster utility."""
    ray = pytest.importorskip("ray")
    utilities = pytest.importorskip("ray.cluster_utils")
    cluster = utilities.Cluster()
    try:
        cluster.add_node(num_cpus=1, include_dashboard=False)
        second = cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        yield cluster, second
    finally:
        ray.shutdown()
        cluster.shutdown()


def kill_midway(cluster: Any, node: Any, store: Store, killed: list[set[str]]) -> None:
    """Kill a node, without a farewell, once a run is done and both nodes are at another."""
    import ray

    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        if store.finished() and not ray.available_resources().get("CPU"):
            killed.append(store.finished())
            cluster.remove_node(node, allow_graceful=False)
            return
        time.sleep(0.05)


def test_a_node_that_dies_midway_loses_no_row_and_doubles_none(
    tmp_path: Path, two_nodes: Any
) -> None:
    cluster, second = two_nodes
    store, killed = Store(tmp_path / "cluster"), list[set[str]]()
    assassin = threading.Thread(target=kill_midway, args=(cluster, second, store, killed))
    assassin.start()
    said = io.StringIO()
    outcome = execute(runs(STEPS), store, backend="ray", console=Console(file=said))
    assassin.join()
    assert len(killed) == 1
    assert len(killed[0]) < 6
    # What the killed node was at is begun anew on the other, by us or by Ray itself.
    assert said.getvalue().count("tried again") <= 1
    assert outcome.finished == 6
    assert not outcome.faults
    rows = store.rows()
    places = Counter((row["run"], row["step"]) for row in rows)
    assert set(places.values()) == {1}
    assert len(store.path.read_text().splitlines()) == len(rows)
    quiet = Store(tmp_path / "quiet")
    execute(runs(STEPS), quiet, jobs=1)
    assert timeless(rows) == timeless(quiet.rows())

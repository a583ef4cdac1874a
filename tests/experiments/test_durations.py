"""What ran how long, from the last rows of runs."""

from __future__ import annotations

from headstart.experiments.durations import durations
from headstart.experiments.results import by_page
from headstart.reporting.document import to_markdown
from tests.experiments.conftest import row


def test_training_is_summed_up_for_each_net_of_a_page() -> None:
    rows = [
        row("iblm", 0, 0, 1.0, seconds=0.0),
        row("iblm", 0, 9, 0.5, last=True, seconds=90.0),
        row("xavier", 0, 9, 0.5, last=True, seconds=270.0),
        # No last row: an evaluation half-way through a run.
        row("iblm", 1, 5, 0.5, seconds=1000.0),
    ]
    text = to_markdown(durations(by_page(rows)))
    first = rows[0]
    (line,) = [line for line in text.splitlines() if line.startswith("| regression-deep |")]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[1:6] == [first["dataset"], first["model"], "2", "1.5 to 4.5", "0.10"]


def test_starts_alone_took_no_training() -> None:
    assert durations(by_page([row("iblm", 0, 0, 1.0, last=True, seconds=0.0)])) == []

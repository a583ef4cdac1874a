"""The commands of data sets as a user runs them: real processes."""

from __future__ import annotations

import json

from tests.processes import run


def test_data_sets_are_listed_with_where_they_are() -> None:
    rows = {row["name"]: row for row in json.loads(run("data", "list", "--json").stdout)}
    assert rows["digits"]["where"] == "built in"
    assert (rows["mnist"]["n"], rows["mnist"]["d"], rows["mnist"]["classes"]) == (60000, 784, 10)
    table = run("data", "list").stdout
    assert all(name in table for name in rows)


def test_data_sets_are_verified() -> None:
    result = run("data", "verify", "digits", "toy", "--json")
    assert result.returncode == 0
    assert [check["ok"] for check in json.loads(result.stdout)] == [True, True]

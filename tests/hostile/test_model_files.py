"""A model file may say anything: it is loaded, or refused in a sentence; nothing runs, nothing grows, nothing else is touched."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import headstart as hs
from headstart import files
from headstart.checkpoints import Keeper
from tests.hostile import corpus
from tests.hostile.conftest import command, fuzzed, patience, tree

Result = TypeVar("Result")


def write_models(folder: Path) -> list[Path]:
    """A model of each family and of some likelihoods, as `save` leaves them."""
    torch.manual_seed(0)
    kinds = {"mean_field": hs.Gaussian(0.3), "low_rank": hs.Categorical(3), "full_covariance": hs.Heteroscedastic()}
    for number, (family, lik) in enumerate(kinds.items()):
        outputs = {"low_rank": 3, "full_covariance": 2}.get(family, 1)
        model = hs.bayesianize(
            hs.models.create("mlp-1x4", 3, outputs), posterior=family, prior=["learned", 0.7][number % 2]
        )
        hs.save(folder / family, model, lik)
    return [folder / family for family in kinds]


@fuzzed
@given(data=st.data())
def test_model_files(place: Path, data: st.DataObject) -> None:
    sound = place / "sound"
    if not sound.is_dir():
        sound.mkdir()
        write_models(sound)
    source = data.draw(st.sampled_from(sorted(sound.iterdir())))
    path = place / "model"
    way = data.draw(corpus.model_file(source, path, "model"))
    unchanged = path.read_bytes() == source.read_bytes()
    before = tree(place)
    refusal, loaded = attempt(lambda: hs.load(path))
    if loaded is None:
        assert str(path) in refusal or refusal.startswith("There is no"), refusal
    else:
        assert way != "bytes" or unchanged, "a damaged file was taken for a whole one"
        found = hs.predict(*loaded, torch.randn(4, 3), samples=4, seed=0)
        assert found.mean.shape[0] == 4
    assert tree(place) == before


@fuzzed
@given(data=st.data())
def test_checkpoints(place: Path, data: st.DataObject) -> None:
    """A checkpoint that is damaged is passed over or refused; the fit itself is asked to take it up."""
    sound, folder = place / "whole", place / "checkpoints"
    if not sound.is_dir():
        _fit(sound)
    (source,) = sorted(sound.iterdir())[-1:]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    way = data.draw(corpus.model_file(source, folder / source.name, "checkpoint"))
    unchanged = (folder / source.name).read_bytes() == source.read_bytes()
    _, history = attempt(lambda: _fit(folder))
    assert history is None or way != "bytes" or unchanged, "a damaged checkpoint was taken for a whole one"


def attempt(call: Callable[[], Result]) -> tuple[str, Result | None]:
    """What a call gives, or the sentence with which it refuses."""
    try:
        with patience():
            return "", call()
    except hs.HeadstartError as error:
        sentence = str(error)
    assert "\n" not in sentence.strip(), sentence
    return sentence, None


def _fit(folder: Path) -> hs.History:
    torch.manual_seed(0)
    x = torch.randn(20, 3)
    model = hs.bayesianize(hs.models.create("mlp-1x4", 3, 1))
    return hs.fit(
        model, hs.Gaussian(), (x, x.sum(1)), steps=4, every=2, checkpoint=folder, resume=True, progress=False, seed=0
    )


@fuzzed
@given(data=st.data())
def test_runs_of_tables(place: Path, data: st.DataObject) -> None:
    """`headstart predict` and `report` with a folder of which one file is spoilt."""
    sound, spoilt = place / "run", place / "spoilt"
    table = place / "table.csv"
    if not sound.is_dir():
        table.write_text("a,b,y\n" + "".join(f"{i % 7},{'xyz'[i % 3]},{i % 5 + 0.5}\n" for i in range(60)))
        assert (
            command("fit", str(table), "--target", "y", "--out", str(sound), "--steps", "3", "--task", "regression")[0]
            == 0
        )
    shutil.rmtree(spoilt, ignore_errors=True)
    shutil.copytree(sound, spoilt)
    path = data.draw(st.sampled_from(sorted(spoilt.iterdir())))
    if path.suffix == ".safetensors":
        data.draw(corpus.model_file(sound / path.name, path, "model"))
    else:
        path.write_bytes(data.draw(corpus.damaged(path.read_bytes())))
    unchanged = _content(path) == _content(sound / path.name) or path.suffix == ".html"
    out = place / "predictions.csv"
    out.write_text("results of old")
    before = tree(place)
    code, said = command("predict", str(spoilt), str(table), "--out", str(out))
    assert code in (0, 2), said
    if code:
        assert said.startswith("headstart: "), said
        assert said.strip().count("\n") == 0, said
        assert tree(place) == before
    else:
        assert unchanged or path.suffix == ".safetensors" or path.name == "found.json"
        changed = {name for name, digest in tree(place).items() if before.get(name) != digest}
        assert changed <= {"predictions.csv"}


def _content(path: Path) -> object:
    """What a file says: blanks between the words of JSON do not count."""
    try:
        return json.loads(path.read_bytes()) if path.suffix == ".json" else path.read_bytes()
    except ValueError:
        return None


@fuzzed
@given(data=st.data())
def test_rows_of_experiments(place: Path, data: st.DataObject) -> None:
    """`headstart report` of a folder whose rows say anything."""
    sound, spoilt = place / "rows", place / "spoilt-rows"
    if not sound.is_dir():
        words = [
            "compare",
            "--dataset",
            "toy",
            "--model",
            "mlp-1x5",
            "--init",
            "iblm,xavier",
            "--steps",
            "2",
            "--jobs",
            "1",
            "--out",
        ]
        assert command(*words, str(sound))[0] == 0
    rows = [json.loads(line) for line in (sound / "rows.jsonl").read_text().splitlines()]
    shutil.rmtree(spoilt, ignore_errors=True)
    spoilt.mkdir()
    if data.draw(st.booleans()):
        lines = [json.dumps(row) for row in data.draw(corpus.spoilt_json(rows))]
        (spoilt / "rows.jsonl").write_text("\n".join(lines) + "\n")
    else:
        (spoilt / "rows.jsonl").write_bytes(data.draw(corpus.damaged((sound / "rows.jsonl").read_bytes())))
    before = tree(place)
    code, said = command("report", str(spoilt), "--markdown", str(spoilt / "pages"))
    assert code in (0, 2), said
    assert not code or (said.startswith("headstart: ") and said.strip().count("\n") == 0), said
    after = tree(place)
    assert {name: after.get(name) for name in before} == before
    assert all(name.startswith("spoilt-rows/") for name in after.keys() - before.keys())


def test_a_recipe_of_a_giant_is_refused_before_it_is_built(tmp_path: Path) -> None:
    """Sizes are checked against the file: neither a net, a rank nor a dense prior of terabytes is allocated."""
    (source, *_) = write_models(tmp_path)
    file = files.open_tensors(source, "model")
    giant = {**file.description, "net": ["mlp-1x999999999", [999_999], 1]}
    files.write_tensors(tmp_path / "giant", file.read(), "model", giant)
    with pytest.raises(hs.HeadstartError, match="with shape"):
        hs.load(tmp_path / "giant")
    layers = {
        name: {**entry, "posterior": {"name": "low_rank", "options": {"rank": 10**11}}}
        for name, entry in file.description["layers"].items()
    }
    files.write_tensors(tmp_path / "ranks", file.read(), "model", {**file.description, "layers": layers})
    with pytest.raises(hs.HeadstartError, match=r"with shape|disagree"):
        hs.load(tmp_path / "ranks")


def test_a_file_of_the_first_format_is_still_read(tmp_path: Path) -> None:
    """It had no checksum."""
    from safetensors.torch import save_file

    (source, *_) = write_models(tmp_path)
    file = files.open_tensors(source, "model")
    save_file(file.read(), tmp_path / "old", {"model": json.dumps({**file.description, "format": 1})})
    hs.load(tmp_path / "old")
    assert Keeper(tmp_path).latest({}) is None

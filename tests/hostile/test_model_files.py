"""A model file may say anything: it is loaded, or refused in a sentence; nothing in it runs."""

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
from torch import nn

import headstart as hs
from headstart.storage import files
from headstart.storage.checkpoints import Keeper
from headstart.tabular.run import put_in_place
from tests.hostile import corpus
from tests.hostile.conftest import command, fuzzed, patience, tree

Result = TypeVar("Result")


def write_models(folder: Path) -> list[Path]:
    """A model of each family and of some likelihoods, as `save` leaves them."""
    torch.manual_seed(0)
    kinds = {
        "mean_field": hs.Gaussian(0.3),
        "low_rank": hs.Categorical(3),
        "full_covariance": hs.Heteroscedastic(),
    }
    for number, (family, lik) in enumerate(kinds.items()):
        outputs = {"low_rank": 3, "full_covariance": 2}.get(family, 1)
        model = hs.bayesianize(
            hs.models.create("mlp-1x4", 3, outputs),
            posterior=family,
            prior=["learned", 0.7][number % 2],
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
def test_files_of_conditioned_nets(place: Path, data: st.DataObject) -> None:
    source, path = place / "conditioned", place / "model"
    if not source.is_file():
        torch.manual_seed(0)
        x = torch.randn(30, 3)
        model = hs.bayesianize(hs.models.create("mlp-1x4", 3, 1))
        hs.save(source, hs.condition(model, hs.Gaussian(), (x, x.sum(1)), draws=3))
    way = data.draw(corpus.model_file(source, path, "model"))
    unchanged = path.read_bytes() == source.read_bytes()
    refusal, loaded = attempt(lambda: hs.load(path, conditioned=True))
    if loaded is None:
        assert str(path) in refusal or refusal.startswith("There is no"), refusal
    else:
        assert way != "bytes" or unchanged, "a damaged file was taken for a whole one"
        assert loaded.predict(torch.randn(4, 3), 6, seed=0).mean.shape[0] == 4


@fuzzed
@given(data=st.data())
def test_checkpoints(place: Path, data: st.DataObject) -> None:
    """A checkpoint that is damaged is passed over or refused; the fit itself has to take it up."""
    sound, folder = place / "whole", place / "checkpoints"
    if not sound.is_dir():
        _fit(sound)
    (source,) = sorted(sound.iterdir())[-1:]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    way = data.draw(corpus.model_file(source, folder / source.name, "checkpoint"))
    unchanged = (folder / source.name).read_bytes() == source.read_bytes()
    _, history = attempt(lambda: _fit(folder))
    assert history is None or way != "bytes" or unchanged, (
        "a damaged checkpoint was taken for a whole one"
    )


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
        model,
        hs.Gaussian(),
        (x, x.sum(1)),
        steps=4,
        every=2,
        checkpoint=folder,
        resume=True,
        progress=False,
        seed=0,
    )


@pytest.mark.slow
@fuzzed
@given(data=st.data())
def test_runs_of_tables(place: Path, data: st.DataObject) -> None:
    """`headstart predict` and `report` with a folder of which one file is damaged."""
    sound, damaged = place / "run", place / "damaged"
    table = place / "table.csv"
    if not sound.is_dir():
        table.write_text(
            "a,b,y\n" + "".join(f"{i % 7},{'xyz'[i % 3]},{i % 5 + 0.5}\n" for i in range(60))
        )
        assert (
            command(
                "fit",
                str(table),
                "--target",
                "y",
                "--out",
                str(sound),
                "--steps",
                "3",
                "--task",
                "regression",
            )[0]
            == 0
        )
    shutil.rmtree(damaged, ignore_errors=True)
    shutil.copytree(sound, damaged)
    path = data.draw(st.sampled_from(sorted(damaged.iterdir())))
    if path.suffix == ".safetensors":
        data.draw(corpus.model_file(sound / path.name, path, "model"))
    else:
        path.write_bytes(data.draw(corpus.damaged(path.read_bytes())))
    unchanged = _content(path) == _content(sound / path.name) or path.suffix == ".html"
    out = place / "predictions.csv"
    out.write_text("results of old")
    before = tree(place)
    code, said = command("predict", str(damaged), str(table), "--out", str(out))
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


@pytest.mark.slow
@fuzzed
@given(data=st.data())
def test_rows_of_experiments(place: Path, data: st.DataObject) -> None:
    """`headstart report` of a folder whose rows say anything."""
    sound, damaged = place / "rows", place / "damaged-rows"
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
    shutil.rmtree(damaged, ignore_errors=True)
    damaged.mkdir()
    if data.draw(st.booleans()):
        lines = [json.dumps(row) for row in data.draw(corpus.damaged_json(rows))]
        (damaged / "rows.jsonl").write_text("\n".join(lines) + "\n")
    else:
        (damaged / "rows.jsonl").write_bytes(
            data.draw(corpus.damaged((sound / "rows.jsonl").read_bytes()))
        )
    before = tree(place)
    code, said = command("report", str(damaged), "--markdown", str(damaged / "pages"))
    assert code in (0, 2), said
    assert not code or (said.startswith("headstart: ") and said.strip().count("\n") == 0), said
    after = tree(place)
    assert {name: after.get(name) for name in before} == before
    assert all(name.startswith("damaged-rows/") for name in after.keys() - before.keys())


def test_a_recipe_of_a_giant_is_refused_before_it_is_built(tmp_path: Path) -> None:
    """Sizes are checked against the file: no net, rank or dense prior of terabytes is allocated."""
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
    files.write_tensors(
        tmp_path / "ranks", file.read(), "model", {**file.description, "layers": layers}
    )
    with pytest.raises(hs.HeadstartError, match=r"with shape|disagree"):
        hs.load(tmp_path / "ranks")


@pytest.mark.parametrize("log_rate", [16.0, 25.0, 60.0, 500.0])
def test_rates_without_end_are_loaded_in_no_time(tmp_path: Path, log_rate: float) -> None:
    model = hs.bayesianize(hs.models.create("mlp-0x5", 3, 1))
    with torch.no_grad():
        model[1].posterior.mean[:, -1] = log_rate
    hs.save(tmp_path / "m", model, hs.Poisson())
    with patience():
        again, lik = hs.load(tmp_path / "m")
        low, high = hs.predict(again, lik, torch.zeros(2, 3), samples=3, seed=0).interval(0.9)
    assert (low <= high).all()


def test_giant_images_are_not_tried_out(tmp_path: Path) -> None:
    """Nothing of a resnet's weights tells how large its images are."""
    hs.save(
        tmp_path / "m", hs.bayesianize(hs.models.create("resnet", (3, 8, 8), 2)), hs.Categorical(2)
    )
    file = files.open_tensors(tmp_path / "m", "model")
    files.write_tensors(
        tmp_path / "m",
        file.read(),
        "model",
        {**file.description, "net": ["resnet", [3, 400_000, 400_000], 2]},
    )
    model, _ = hs.load(tmp_path / "m")
    assert len(hs.bayesian_layers(model)) == len(file.description["layers"])


def test_a_tensor_that_is_named_again_is_damage(tmp_path: Path) -> None:
    files.write_tensors(
        tmp_path / "step-000000001.safetensors",
        {"0": torch.zeros(2**16)},
        "checkpoint",
        {"identity": {}, "state": {"list": ["tensor:0"] * 2000}},
    )
    with pytest.raises(hs.HeadstartError, match="damaged"):
        Keeper(tmp_path).latest({})


def test_a_checkpoint_just_written_is_not_let_go_for_a_damaged_later_one(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path, keep=1)
    keeper.save(900, {"a": 1}, {})
    (tmp_path / "step-000000900.safetensors").write_bytes(b"damaged")
    keeper.save(850, {"a": 2}, {})
    assert keeper.latest({}) == {"a": 2}


def test_one_tensor_in_two_places_and_infinite_buffers_come_back(tmp_path: Path) -> None:
    def net() -> nn.Module:
        first, second = nn.LayerNorm(3), nn.LayerNorm(3)
        second.weight = first.weight
        whole = nn.Sequential(first, second, nn.Linear(3, 1))
        whole.register_buffer("mask", torch.tensor([0.0, -torch.inf]))
        return whole

    model = hs.bayesianize(net())
    nn.init.constant_(model[0].weight, 3.0)
    hs.save(tmp_path / "m", model, hs.Gaussian())
    again, _ = hs.load(tmp_path / "m", net=net())
    assert again[0].weight is again[1].weight
    assert again[1].weight.tolist() == [3.0] * 3
    assert again.mask.tolist() == [0.0, -torch.inf]


def test_a_run_is_replaced_or_stays(tmp_path: Path) -> None:
    """Also through a link."""
    old, new, link = tmp_path / "old", tmp_path / "new", tmp_path / "link"
    for folder in (old, new):
        folder.mkdir()
        (folder / "name").write_text(folder.name)
    link.symlink_to(old)
    with pytest.raises(OSError):
        put_in_place(tmp_path / "not there", old)
    assert (old / "name").read_text() == "old"
    put_in_place(new, link.resolve())
    assert (link / "name").read_text() == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "old"]


def test_a_file_of_the_first_format_is_still_read(tmp_path: Path) -> None:
    """It had no checksum."""
    from safetensors.torch import save_file

    (source, *_) = write_models(tmp_path)
    file = files.open_tensors(source, "model")
    save_file(
        file.read(), tmp_path / "old", {"headstart": json.dumps({**file.description, "format": 1})}
    )
    again, _ = hs.load(tmp_path / "old")
    assert torch.equal(again[1].posterior.mean, hs.load(source)[0][1].posterior.mean)
    assert Keeper(tmp_path).latest({}) is None

"""Files as an enemy, a bad disk or a spreadsheet would leave them: models and tables."""

from __future__ import annotations

import copy
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from hypothesis import strategies as st

from headstart.storage.files import open_tensors, write_tensors

BAD_NUMBERS = [-1, 0, 1, 2, 7, 10**9, 10**18, 2**63, -(10**30), 0.5, -1e-300, 1e308]
BAD_PLACES = ["", "../../outside", "/etc/passwd", "os.system", "__import__('os')"]
BAD_MODELS = ["mlp-1x999999999", "mlp-999999999x1", "mlp-2x0", "vgg16", "lenet"]
BAD_NAMES = ["gaussian", "categorical", "inherited", "learned", "full_covariance"]
BAD_TEXT = ["<script>", "\x00", "é" * 99]
BAD_NESTS = [
    [],
    {},
    [[]],
    [1, [2, [3]]],
    {"name": "gaussian"},
    {"name": "low_rank", "options": {"rank": 10**9}},
    ["mlp-1x5", [10**12], 3],
]
CELLS_LIKE_NUMBERS = ["", " ", "NA", "nan", "inf", "-inf", "1e400", "0x1F", "1,234", "1.234,5"]
CELLS_LIKE_TIMES = ["12:30", "2020-02-30", "99999-01-01"]
CELLS_LIKE_CODE = ["<script>alert(1)</script>", "=1+1", 'a"b', "'", "\\", "a,b", "a;b", "a\tb"]
CELLS_OF_TEXT = ["\u202e", "😀", "x" * 5000, "TRUE", "no"]
HEADER_CELLS = ["a", "b", "c", "d", "", " ", "y ", "Unnamed: 0", "prediction"]
HEADER_TRICKS = ["<b>bold</b>", "../../x", "nan", "0"]

# What may stand where something sensible stood.
BAD_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([*BAD_NUMBERS, float("nan"), float("inf")]),
    st.sampled_from([*BAD_PLACES, *BAD_MODELS[:3]]),
    st.sampled_from([*BAD_MODELS[3:], *BAD_NAMES, *BAD_TEXT]),
    st.sampled_from(BAD_NESTS),
)


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """Bytes of which some are gone, changed, doubled or added."""
    at = draw(st.integers(0, max(0, len(content) - 1)))
    length = draw(st.integers(1, 64))
    kind = draw(st.sampled_from(["cut", "flip", "zero", "insert", "double", "head", "noise"]))
    if kind == "cut":
        return content[:at]
    if kind == "flip":
        return (
            content[:at] + bytes([content[at] ^ (1 << draw(st.integers(0, 7)))]) + content[at + 1 :]
        )
    if kind == "zero":
        return content[:at] + bytes(min(length, len(content) - at)) + content[at + length :]
    if kind == "insert":
        return content[:at] + draw(st.binary(min_size=1, max_size=64)) + content[at:]
    if kind == "double":
        return content[: at + length] + content[at:]
    if kind == "head":
        return draw(st.binary(min_size=8, max_size=8)) + content[8:]
    return draw(st.binary(max_size=400))


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in nested JSON."""
    inside = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [path, *(place for key, part in inside for place in places(part, (*path, key)))]


@st.composite
def damaged_json(draw: st.DrawFn, value: Any) -> Any:
    """JSON with one to three of its values replaced, removed or renamed."""
    value = json.loads(json.dumps(value))
    for _ in range(draw(st.integers(1, 3))):
        *inner, last = draw(st.sampled_from([place for place in places(value) if place]))
        owner = value
        for key in inner:
            owner = owner[key]
        kind = draw(st.sampled_from(["replace", "remove", "rename"]))
        if kind == "replace" or isinstance(owner, list):
            owner[last] = copy.deepcopy(draw(BAD_VALUES))
        else:
            moved = owner.pop(last)
            if kind == "rename":
                owner[str(draw(BAD_VALUES))] = moved
    return value


@st.composite
def damaged_tensors(draw: st.DrawFn, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tensors of which one is missing, foreign, of another shape or type, or not finite."""
    tensors = dict(tensors)
    name = draw(st.sampled_from(sorted(tensors)))
    kind = draw(
        st.sampled_from(["remove", "rename", "shape", "dtype", "nan", "inf", "empty", "huge"])
    )
    tensor = tensors.pop(name)
    whole = not tensor.is_floating_point()
    changes: dict[str, Callable[[], torch.Tensor]] = {
        "shape": lambda: tensor.reshape(-1)[:1].expand(3, 2).clone(),
        "dtype": lambda: tensor.to(
            draw(st.sampled_from([torch.int64, torch.bool, torch.float16, torch.float64]))
        ),
        "nan": lambda: torch.full_like(tensor, 7 if whole else float("nan")),
        "inf": lambda: torch.full_like(tensor, 7 if whole else float("inf")),
        "empty": lambda: tensor.new_zeros(0),
        "huge": lambda: torch.full_like(tensor, 7 if whole else 1e38),
    }
    if kind in changes:
        tensors[name] = changes[kind]()
    elif kind == "rename":
        tensors[draw(st.sampled_from(["../x", "model.0.weight", "likelihood.", "x" * 1000]))] = (
            tensor
        )
    return tensors


@st.composite
def model_file(draw: st.DrawFn, sound: Path, path: Path, kind: str) -> str:
    """Write a malformed relative of the file `sound`, and say how: bytes, or a forged checksum."""
    way = draw(st.sampled_from(["bytes", "description", "tensors"]))
    if way == "bytes":
        path.write_bytes(draw(damaged(sound.read_bytes())))
        return way
    file = open_tensors(sound, kind)
    tensors, description = file.read(), file.description
    if way == "tensors":
        write_tensors(path, draw(damaged_tensors(tensors)), kind, description)
    else:
        write_tensors(path, tensors, kind, draw(damaged_json(description)))
    return way


CELLS = st.one_of(
    st.floats(width=32).map(str),
    st.integers(-(10**6), 10**6).map(str),
    st.sampled_from([*CELLS_LIKE_NUMBERS, *CELLS_LIKE_TIMES]),
    st.sampled_from([*CELLS_LIKE_CODE, *CELLS_OF_TEXT]),
    st.text(max_size=8),
)
NAMES = st.one_of(
    st.sampled_from([*HEADER_CELLS, *HEADER_TRICKS]),
    st.text(max_size=6),
)


@st.composite
def table_text(draw: st.DrawFn) -> str:
    """A table of sorts: cells of all kinds, lines of any length, a header that may be missing."""
    # Half of them are nearly sound, for what comes after reading.
    learnable = draw(st.booleans())
    separator = draw(
        st.sampled_from([",", ";", "\t", "|"] if learnable else [",", ";", "\t", "|", " "])
    )
    names = draw(
        st.lists(
            NAMES, min_size=int(learnable), max_size=5, unique_by=str.strip if learnable else None
        )
    )
    names = [*names, *draw(st.sampled_from([["y"]] if learnable else [["y"], [], ["y", "y"]]))]
    kinds = [draw(st.sampled_from(["number", "label", "anything", "same"])) for _ in names]
    if learnable:
        kinds[-1] = draw(st.sampled_from(["number", "label", "label"]))
    rows = 40 if learnable else draw(st.sampled_from([0, 1, 2, 3, 12, 40]))
    seed = np.random.default_rng(draw(st.integers(0, 99)))
    ragged = not learnable and draw(st.booleans())
    lines = [names]
    for _ in range(rows):
        columns = {
            "number": lambda: f"{seed.normal():.3g}",
            "label": lambda: str(seed.choice(["red", "green"])),
            "anything": lambda: draw(CELLS),
            "same": lambda: "1",
        }
        cells = [columns[kind]() for kind in kinds]
        lines.append(
            cells[: seed.integers(0, len(cells) + 1)]
            if ragged and cells and seed.random() < 0.1
            else cells
        )
    quoted = learnable or draw(st.booleans())
    end = draw(st.sampled_from(["\n", "\r\n", "\r"]))

    def cell(text: str) -> str:
        return '"' + text.replace('"', '""') + '"' if quoted else text

    return end.join(separator.join(cell(text) for text in line) for line in lines) + draw(
        st.sampled_from(["", end])
    )


@st.composite
def table_file(draw: st.DrawFn, folder: Path) -> Path:
    """A file that somebody takes for a table."""
    text = draw(table_text())
    kind = draw(
        st.sampled_from(
            ["csv"] * 8 + ["tsv", "gz", "parquet", "damaged", "utf-16", "latin-1", "noise"]
        )
    )
    suffix = {"gz": "csv.gz", "parquet": "parquet", "tsv": "tsv"}.get(kind, "csv")
    path = folder / f"table.{suffix}"
    content = text.encode("utf-8", errors="replace")
    if kind == "gz":
        content = gzip.compress(content)
        content = draw(damaged(content)) if draw(st.booleans()) else content
    elif kind == "parquet":
        buffer = io.BytesIO()
        frame = pd.DataFrame(
            {
                "a": range(30),
                "y": [value % 3 for value in range(30)],
                "when": pd.Timestamp("2020-01-01"),
            }
        )
        frame.to_parquet(buffer)
        content = draw(damaged(buffer.getvalue()))
    elif kind == "damaged":
        content = draw(damaged(content))
    elif kind in ("utf-16", "latin-1"):
        content = text.encode(kind, errors="replace")
    elif kind == "noise":
        content = draw(st.binary(max_size=2000))
    path.write_bytes(content)
    return path

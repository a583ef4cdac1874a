"""Whatever is registered stands in the case table, so that every test over the table covers it."""

from __future__ import annotations

from torch import nn

from headstart.initializers import INITIALIZERS
from headstart.likelihoods import LIKELIHOODS
from headstart.likelihoods.reading import OutputReader
from headstart.linalg.affine import SUPPORTED
from headstart.posteriors import POSTERIORS
from headstart.priors import PRIORS
from tests import cases


def test_every_registered_thing_is_a_case() -> None:
    assert set(cases.POSTERIORS) == set(POSTERIORS)
    assert set(cases.PRIORS) == set(PRIORS)
    # Likelihoods made of others have tests of their own.
    plain = {name for name, kind in LIKELIHOODS.items() if kind.parts is OutputReader.parts}
    assert set(cases.LIKELIHOODS) == plain
    assert set(cases.INITIALIZERS) == set(INITIALIZERS)
    # An embedding takes whole numbers, and has tests of its own.
    layers = {type(case.make()) for case in cases.LAYERS.values()}
    assert layers == set(SUPPORTED) - {nn.Embedding}

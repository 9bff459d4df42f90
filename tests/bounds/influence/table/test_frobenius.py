"""Maps of categorical Jacobians: their flags, their symbols, small numbers."""

import functools

import numpy as np
import pytest

from bounds.influence.scan import Frobenius, scan
from bounds.influence.table.frobenius import _norms
from tests.bounds.influence.expect import refused
from tests.bounds.influence.test_scan import INPUT, passes

pytestmark = pytest.mark.usefixtures("small_tiles")


def test_the_norm_of_small_changes_does_not_underflow():
    block = np.full((2, 4, 3), 1e-170)
    np.testing.assert_allclose(_norms(block), np.full(4, 1e-170 * 6**0.5))
    assert (_norms(np.zeros((2, 4, 3))) == 0).all()


def test_what_a_function_made_has_no_table_of_axes(tmp_path):
    model, _, _ = passes("two layers")
    found = scan(model, INPUT, rows="all", reduce=lambda x: x.sum(axis=0))
    for write in (found.to_csv, found.plot):
        with refused(r"only .* have names"):
            write(tmp_path / "out.csv")
    found.to_npz(tmp_path / "out.npz")


def test_a_map_without_a_radius_of_its_largest_cell_is_estimated():
    model, _, _ = passes("three layers")
    ask = functools.partial(scan, model, INPUT, rows="all", target="logits")
    found = ask(reduce=Frobenius(), rounding="top")
    assert found.kind == "estimated"
    assert found.hypotheses == ()
    assert ask(reduce=Frobenius(), rounding="all").kind == "exact"

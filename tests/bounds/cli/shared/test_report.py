"""What the report of a curve says of a fit."""

from types import SimpleNamespace

import pytest

from bounds.cli.shared.report import describe_decay
from bounds.curves.decay import DecayFit


def sentence(exponent, error):
    fit = DecayFit(exponent, error, 1.0, 3, 0, 8, 32)
    return describe_decay(SimpleNamespace(label="softmax", fit=fit, enclosed=0))


@pytest.mark.parametrize(
    ("exponent", "words"), [(0.0, "neither falls nor grows"), (1.0, "falls like 1/n")]
)
@pytest.mark.parametrize("error", [0.0, None])
def test_the_last_bits_of_an_exact_power_do_not_change_the_words(
    exponent, words, error
):
    said = {sentence(exponent + bits, error) for bits in (-2e-16, 0.0, 2e-16)}
    assert len(said) == 1
    assert words in said.pop()


def test_an_exponent_that_is_another_is_called_so():
    assert "falls like n^-1.01" in sentence(1.01, 0.001)
    assert "grows like n^0.01" in sentence(-0.01, 0.001)

"""What an entry of --models of the benchmark of screens stands for."""

import pytest

from benchmarks.screening import read_model
from tests.bounds.influence.expect import refused


def test_an_entry_names_random_weights_or_a_trained_model():
    random, trained = read_model("3@0.5"), read_model("4@dyck2")
    assert (random.pop("layers"), random.pop("scale"), random["vocab_size"]) == (
        3,
        0.5,
        2,
    )
    assert (trained.pop("layers"), trained.pop("trained")) == (4, "dyck2")
    assert trained == {**random, "vocab_size": 4}


@pytest.mark.parametrize("bad", ["3", "3@", "x@0.5", "x@dyck2", "3@dyck"])
def test_another_entry_is_refused(bad):
    with refused(r"as in 3@0\.5, or L@dyck2"):
        read_model(bad)

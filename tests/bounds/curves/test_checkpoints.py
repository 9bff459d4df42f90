"""A curve keeps where the screen of a long input stands, and goes on from there."""

import jax
import numpy as np
import pytest

import jax_models as jm
from bounds.curves.cells import curve_cells
from bounds.curves.inputs import GivenInputs
from bounds.curves.measurement import Question, Subject
from bounds.influence import choice
from bounds.influence.screening import climb
from bounds.store.sweep import MemoryResults, finish_cells


def test_an_interrupted_measurement_goes_on(tmp_path, monkeypatch, quick_compilation):
    """What was screened is not screened again, and the file goes once it is measured."""
    monkeypatch.setattr(climb, "LADDER", climb.LADDER[:1])
    monkeypatch.setattr(choice, "SCREEN_PAYS", 0.1)
    monkeypatch.setattr(choice, "WORTH", (0, 0))
    model = jm.random_transformer(
        jax.random.key(0), num_layers=2, num_heads=1, d_model=4, d_ff=4, vocab_size=3
    )
    inputs = {(12, 0): np.arange(12) % 3}
    source = GivenInputs("given", tuple(inputs.values()))
    subject = Subject(model, "", source, inputs, Question(), 0)

    def measured(folder):
        (cell,) = curve_cells(subject, (), folder=folder).measurements
        results = MemoryResults()
        finish_cells(results, [cell])
        return results.find(cell.config)

    undisturbed = measured(None)
    assert undisturbed is not None
    assert undisturbed["method"] == "screened"
    decide, screened = climb.Decider._compute, climb.screen_block

    def interrupted(*asked):
        raise KeyboardInterrupt

    monkeypatch.setattr(climb.Decider, "_compute", interrupted)
    monkeypatch.setattr("bounds.influence.checkpoint.SECONDS_BETWEEN_SAVES", 0)
    with pytest.raises(KeyboardInterrupt):
        measured(tmp_path)
    assert len([*tmp_path.glob("screen-*.npz")]) == 1
    monkeypatch.setattr(climb.Decider, "_compute", decide)
    monkeypatch.setattr(climb, "screen_block", interrupted)
    assert measured(tmp_path) == undisturbed
    monkeypatch.setattr(climb, "screen_block", screened)
    assert not [*tmp_path.iterdir()]

"""A curve keeps where the screen of a long input stands, and goes on from there."""

import numpy as np
import pytest

from bounds.curves.cells import curve_cells
from bounds.curves.inputs import GivenInputs
from bounds.curves.measurement import Question, Subject
from bounds.influence import choice
from bounds.influence.screening import ladder
from bounds.store.results import MemoryResults
from bounds.store.sweep import finish_cells
from tests.architecture import small_model


def test_an_interrupted_measurement_goes_on(tmp_path, monkeypatch):
    """What was screened is not screened again, and the file goes once it is measured."""
    monkeypatch.setattr(ladder, "LADDER", ladder.LADDER[:1])
    monkeypatch.setattr(choice, "SCREEN_PAYS", 0.1)
    monkeypatch.setattr(choice, "WORTH", (0, 0))
    model = small_model(num_layers=2, vocab_size=3)
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
    decide, screened = ladder.Decider._compute, ladder.screen_block

    def interrupted(*asked):
        raise KeyboardInterrupt

    monkeypatch.setattr(ladder.Decider, "_compute", interrupted)
    monkeypatch.setattr("bounds.influence.checkpoint.SECONDS_BETWEEN_SAVES", 0)
    with pytest.raises(KeyboardInterrupt):
        measured(tmp_path)
    assert len([*tmp_path.glob("screen-*.npz")]) == 1
    monkeypatch.setattr(ladder.Decider, "_compute", decide)
    monkeypatch.setattr(ladder, "screen_block", interrupted)
    assert measured(tmp_path) == undisturbed
    monkeypatch.setattr(ladder, "screen_block", screened)
    assert not [*tmp_path.iterdir()]

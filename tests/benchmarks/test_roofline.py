"""The roofline: what is counted, and where the roof is."""

import numpy as np
import pytest

from benchmarks import roofline
from benchmarks.timing import Timing
from tests.benchmarks.settings import ONCE

CONFIG = {**ONCE, "dtype": "float32", "layers": 2, "n": 12, **roofline.SIZES}
CONFIG |= {"blocks": 2, "matmul": 8, "copy_mib": 1}


def test_the_roof_is_the_lower_of_two_lines():
    found = roofline.roof(np.array([0.5, 2.0, 8.0]), 100.0, 25.0)
    np.testing.assert_array_equal(found, [12.5, 50.0, 100.0])
    program = roofline.Program(lambda: None, 8.0, 4.0, 16.0)
    timing = Timing(2.0, 1.0, 3.0, 3, 0.0)
    row = roofline.rates(program, timing, 100.0, 25.0)
    assert row["flops_per_second"] == 4.0
    assert row["bytes_per_second"] == 2.0
    assert row["roof"] == 50.0
    assert row["fraction"] == 4.0 / 50.0


def test_a_forward_pass_moves_its_arguments_and_its_result():
    program = roofline.forward_program(CONFIG)
    model = roofline.random_model(CONFIG)
    arrays = roofline.size_in_bytes(model) + 4 * CONFIG["n"]
    assert program.bytes == arrays + 4 * CONFIG["n"] * CONFIG["d_model"]
    assert program.traffic > program.bytes
    dense = 2 * CONFIG["n"] ** 2 * CONFIG["d_model"] * 2 * CONFIG["layers"]
    assert program.flops > dense


@pytest.mark.parametrize("kernel", roofline.KERNELS)
def test_every_kernel_has_a_row(kernel):
    layers = roofline.KERNELS[kernel][0]
    config = {**CONFIG, "kernel": kernel, "layers": layers}
    row = roofline.measure(config)
    assert row["fraction"] > 0
    assert row["least_intensity"] < row["intensity"]
    table = roofline.table([(config, row)]).splitlines()
    assert table[0].count("|") == table[-1].count("|")
    (axes,) = roofline.draw([(config, row)]).axes
    assert axes.get_title() == "float32"
    (legend,) = axes.figure.legends
    told = [text.get_text() for text in legend.get_texts()]
    assert told[0] == roofline.WORDS[kernel]
    assert len(told) == 4  # with the roof and both kinds of marks


@pytest.mark.slow
def test_more_blocks_share_what_they_are_given():
    # Blocks of 32 substitutions.
    config = {**CONFIG, "n": 96, "d_model": 128, "kernel": "pairs L=2"}
    one = roofline.influence_program({**config, "blocks": 1})
    two = roofline.influence_program({**config, "blocks": 2})
    assert two.flops == 2 * one.flops
    assert one.bytes < two.bytes < 1.1 * one.bytes

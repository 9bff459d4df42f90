"""Forms, heads and neurons become exactly the weights that the equations say."""

import numpy as np

import jax_models as jm
from jax_models.programs.assembly import (
    CONSTANT,
    Head,
    Neuron,
    build_layer,
    build_readout,
    embed_symbols,
)


def one_layer_model(layer, width=3):
    embedding = embed_symbols([{0: 1}, {0: 2, 1: 3}], width, "float64")
    return jm.Transformer(embedding=embedding, layers=(layer,))


def test_a_layer_without_parts_is_the_identity():
    layer = build_layer(3, weighting=jm.Softmax(), dtype="float64")
    y = jm.apply(one_layer_model(layer), [0, 1])
    np.testing.assert_array_equal(y, [[1, 0, 0], [2, 3, 0]])


def test_heads_and_neurons_do_what_their_equations_say():
    # Head 1 attends where y_0 is largest, head 2 where it is smallest; they read
    # y_0 + 10 and (y_1, y_0), and write to y_2 and, ten- and hundredfold, to y_2.
    heads = [
        Head([{CONSTANT: 1}], [{0: 1}], [{0: 1, CONSTANT: 10}], [{2: 1}]),
        Head([{CONSTANT: -1}], [{0: 1}], [{1: 1}, {0: 1}], [{2: 10}, {2: 100, 1: 5}]),
    ]
    # y_2 = 12 + 0 + 100 = 112 and y_1 gains 5; the neuron adds 2 R(y_2 - 111) to y_0.
    neurons = [
        Neuron({2: 1, CONSTANT: -111}, {0: 2}),
        Neuron({2: -1}, {0: 1000}),
    ]
    layer = build_layer(
        3,
        weighting=jm.LeftmostHardmax(),
        heads=heads,
        neurons=neurons,
        dtype="float64",
    )
    y = jm.apply(one_layer_model(layer), [0, 1])
    np.testing.assert_array_equal(y, [[1 + 2, 0 + 5, 112], [2 + 2, 3 + 5, 112]])
    readout = build_readout({1: 2, CONSTANT: -1}, 3, "float64")
    np.testing.assert_array_equal(readout(y), [[9], [15]])


def test_score_components_add_up():
    # Score y_0(i) y_0(j) - y_1(j): at row 1 (y_0 = 2) 2 for column 0, 4 - 3 = 1.
    head = Head([{0: 1}, {CONSTANT: -1}], [{0: 1}, {1: 1}], [{0: 1}], [{2: 1}])
    layer = build_layer(
        3, weighting=jm.LeftmostHardmax(), heads=[head], dtype="float64"
    )
    y = jm.apply(one_layer_model(layer), [0, 1])
    assert np.asarray(y)[1, 2] == 1

"""What the closed forms of a model are made of: layers, masks, the last map, claims."""

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pytest

import jax_models as jm
from bounds import closed_form_bounds, read_constants
from bounds.lemma5.closed_form import (
    influence_recursion,
    masked_recursion,
    printed,
    printed_shape_bound,
    printed_tight,
    single_exponential_bound,
    uniform_constants,
)
from bounds.lemma5.constants import evaluate_closed_forms
from bounds.numbers.bound import Bound, Claim
from tests.bounds.lemma5.constants.drawn import FACTORS, draw

N = 20


def forms_of(length=N, seed=0, target="activation", query=-1, **case):
    case = {"num_layers": 2, "num_heads": 2, "scale": 0.3, "target": target, **case}
    model = draw(seed, **case).model
    return closed_form_bounds(model, length, target=target, query=query)


def test_without_masks_the_forms_are_the_statements_on_the_constants():
    forms = forms_of()
    c = forms.constants
    arguments = N, c.embedding.distance
    assert forms.corrected == influence_recursion(c.layers, *arguments)[-1]
    linear = influence_recursion(c.layers, *arguments, saturating=False)[-1]
    assert forms.linear == linear
    uniform = uniform_constants(c.layers)
    assert forms.c1 == single_exponential_bound(uniform, *arguments)
    assert forms.c2 == printed_shape_bound(uniform, *arguments)
    scores = [head.score for layer in c.layers for head in layer.heads]
    lipschitz, norm = uniform.output_lipschitz, c.embedding.separate
    shared: Any = {"scores": scores, "output_lipschitz": lipschitz, "num_heads": 3}
    given: Any = {"embedding_norm": norm, "growth": c.growth(), "num_layers": 2}
    literal = printed(**shared, **given)
    tight = printed_tight(**shared, norm=max(layer.norm for layer in c.layers))
    for found, reading in ((forms.printed, literal), (forms.printed_tight, tight)):
        assert found is not None
        assert found.others == reading.others(2, *arguments)
        assert found.own == reading.own(2, c.embedding.distance)
    assert forms.causal is None


def test_bounds_are_bounds_and_printed_numbers_are_claims():
    forms = forms_of()
    for form in (forms.corrected, forms.linear, forms.c1, forms.c2):
        assert isinstance(form.others, Bound)
        assert isinstance(form.own, Bound)
    for form in (forms.printed, forms.printed_tight):
        assert isinstance(form.others, Claim)
        assert isinstance(form.own, Claim)
        assert form.others.quantity == forms.corrected.others.quantity
        assert forms.corrected.others.log_value <= form.others.log_value
    assert forms.hypotheses[-1].endswith("claims of Hahn 2020, not proved")


@pytest.mark.parametrize("mask", ["future", "past", "strict_future", "strict_past"])
def test_under_a_mask_corrected_is_the_worst_position_of_the_query_row(mask):
    query = 12
    forms = forms_of(masks=(mask,), query=query)
    c = forms.constants
    assert (forms.c1, forms.c2, forms.causal) == (None, None, None)
    given = c.layers, c.masks, N, c.embedding.distance
    assert forms.corrected == masked_recursion(*given, query=query)
    assert any("without a mask, which" in text for text in forms.hypotheses)


@pytest.mark.parametrize(
    ("mask", "query", "expected"),
    [
        ("future", -1, True),
        ("future", 3, False),
        ("past", 0, True),
        ("past", -1, False),
        ("strict_future", -1, False),
        ("none", -1, False),
    ],
)
def test_the_causal_form_is_for_the_row_that_sees_everything(mask, query, expected):
    forms = forms_of(masks=(mask,), query=query)
    assert (forms.causal is not None) == expected
    if forms.causal is not None:
        assert forms.linear.others <= forms.causal.others


def test_a_row_that_sees_nothing_is_never_changed_by_another():
    forms = forms_of(masks=("strict_future",), query=0)
    assert forms.corrected.others.value == 0
    assert forms.corrected.own.value > 0
    assert forms.constants.attention_weight(2, 0) == 0


@pytest.mark.parametrize("masks", FACTORS["masks"], ids="+".join)
@pytest.mark.parametrize("silent", [".output", "embedding"])
def test_what_changes_no_other_row_is_zero_in_every_form_with_gains(silent, masks):
    for layer_norm, query in itertools.product(("none", "post"), (0, -1)):
        case = {"masks": masks, "layer_norm": layer_norm, "num_heads": 2}
        model = draw(0, num_layers=2, **case).scaled(0, silent).model
        forms = closed_form_bounds(model, 3, query=query)
        for form in (forms.corrected, forms.linear, forms.causal):
            assert form is None or form.others.log_value == -math.inf


def test_the_last_map_multiplies_what_holds_of_the_activations():
    """Dropping the final norm and the read-out must leave their factors behind."""
    drawn = draw(1, num_layers=2, scale=1.0, final_norm=True, target="logits")
    plain = dataclasses.replace(drawn.model, final_norm=None, readout=None)
    before = closed_form_bounds(plain, N)
    gamma = np.abs(drawn.tensors["final_norm.scale"]).max()
    norm = gamma / math.sqrt(drawn.config["layer_norm_epsilon"])
    readout = np.linalg.norm(drawn.tensors["readout.weight"], 2)
    for target, factor in (("activation", norm), ("logits", norm * readout)):
        after = closed_form_bounds(drawn.model, N, target=target)
        for name in ("linear", "c1", "c2", "printed", "printed_tight"):
            for part in ("others", "own"):
                one, other = (getattr(getattr(x, name), part) for x in (before, after))
                grown = one.log_value + math.log(factor)
                assert other.log_value == pytest.approx(grown, rel=1e-13)
                assert other.log_value >= grown - 1e-12 * abs(grown)
                assert other.quantity != one.quantity
                assert len(other.hypotheses) == len(one.hypotheses) + 1
        # Saturated: two outputs of a LayerNorm are never farther apart.
        cap = 2 * gamma * math.sqrt(6) * factor / norm
        assert after.corrected.others.value == pytest.approx(cap, rel=1e-12)


def test_a_readout_of_zeros_forgets_everything():
    model = draw(1, target="logits").scaled(0, "readout.weight").model
    forms = closed_form_bounds(model, N, target="logits")
    assert forms.corrected.others.value == forms.c2.others.value == 0


def test_inner_layers_speak_of_activations_and_the_last_of_the_output():
    constants = forms_of(final_norm=True).constants
    first, last = (evaluate_closed_forms(constants, layer=k) for k in (1, 2))
    assert first.corrected.others.quantity == "|y_j^(1) - y'_j^(1)|, j != i"
    assert last.corrected.others.quantity == "|LN(y_j) - LN(y'_j)|, j != i"
    alone = influence_recursion(constants.layers[:1], N, constants.embedding.distance)
    assert first.corrected == alone[-1]


def test_far_beyond_floats_the_logarithms_go_on():
    forms = forms_of(num_layers=4, scale=3.0)
    assert forms.printed is not None
    chain = (forms.linear, forms.c1, forms.c2, forms.printed_tight, forms.printed)
    decades = [form.others.log10_value for form in chain]
    assert decades[1] > 308
    assert decades == sorted(decades)
    assert all(map(math.isfinite, decades))
    # What saturates stays within the activations' own range.
    assert forms.corrected.others.value <= 2 * forms.constants.norms[-1]


def test_weights_beyond_all_floats_leave_a_true_bound():
    for mask in ("none", "future"):
        drawn = draw(0, num_layers=3, masks=(mask,)).scaled(1e200, "value", "output")
        forms = closed_form_bounds(drawn.model, N)
        for form in (forms.corrected, forms.linear, forms.c2, forms.printed):
            if form is not None:
                assert form.others.log_value == math.inf


@pytest.mark.parametrize("scale", [1e100, 1e200, 1e-200])
def test_weights_of_any_size_leave_bounds_without_a_warning(scale):
    forms = closed_form_bounds(draw(0, num_layers=2).scaled(scale, "").model, N)
    # Below the floats nothing is left but the embedding itself.
    assert forms.corrected.own.value >= forms.constants.embedding.distance > 0
    assert forms.corrected.others.log_value < math.inf or scale > 1


def test_embeddings_that_vanish_leave_nothing_to_change():
    drawn = draw(0, position="none", biases=True).scaled(0, "embedding")
    forms = closed_form_bounds(drawn.model, N)
    assert forms.corrected.own.value == 0
    # No printed F covers activations that come from biases alone.
    assert forms.printed is None
    assert forms.printed_tight.others.value == 0


def test_closed_forms_are_shown_in_a_line():
    forms = forms_of(masks=("future",))
    said = repr(forms)
    assert f"n = {N}, layer 2, query {N - 1}: corrected <= " in said
    assert f"causal <= {forms.causal.others.size}" in said
    assert f"printed claim <= {forms.printed.others.size}" in said
    assert "c1" not in said


@pytest.mark.parametrize("mask", ["none", "future"])
def test_abar_is_the_largest_weight_of_the_query_row(mask):
    constants = forms_of(masks=(mask,)).constants
    a = constants.half_oscillation(2)
    assert a == max(constants.half_oscillation(k) for k in (1, 2))
    for query in (3, N - 1):
        seen = N if mask == "none" else query + 1
        expected = 1 / (1 + (seen - 1) * math.exp(-2 * a))
        found = constants.attention_weight(2, query)
        assert found == pytest.approx(expected, rel=1e-13)
    # A row of n = 1 + e^{2A} keys can give half its weight to one of them, no more.
    half = 10 ** constants.log10_half_weight(2)
    assert 1 / (1 + (half - 1) * math.exp(-2 * a)) == pytest.approx(0.5, rel=1e-12)


def test_a_question_that_does_not_fit_is_refused():
    model = draw(0).model
    with pytest.raises(jm.InputError, match="query = 20 is out of range"):
        closed_form_bounds(model, N, query=20)
    with pytest.raises(jm.InputError, match="read-out"):
        closed_form_bounds(model, N, target="logits")
    constants = read_constants(model, N)
    with pytest.raises(jm.InputError, match="read-out"):
        evaluate_closed_forms(constants, target="logits")
    with pytest.raises(
        jm.InputError, match="layer = 2; expected an integer from 1 to 1"
    ):
        evaluate_closed_forms(constants, layer=2)

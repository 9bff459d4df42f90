"""The closed forms of Lemma 5 (Hahn 2020), evaluated on the constants of a model.

They bound the change of row j when the symbol at position i is exchanged, for all inputs
of one length; D is the distance of the two embeddings, F a bound on activations: the tight
one is a true bound, the literal one as printed. The target is the final activation or the
logits. A saturating form uses that averages and outputs have a bounded range.

Without masks: the corrected recursion, saturating and linear, and its closed forms C1
and C2. With masks there is no O(1/n) for all rows and these do not hold; `corrected` is
then the masked recursion at the query row, and where every mask is "future" and the query
the last row, or the mirror image, there is a closed form too. The printed numbers are
given whatever the mask, as the claims they are: their proof does not hold.
"""

import dataclasses
import math
import textwrap
from typing import Any, TypeVar, get_args

from bounds.influence.substitution import check_query, choose_query
from bounds.influence.targets.base import PlainTarget
from bounds.influence.targets.table import check_head_row
from bounds.lemma5.closed_form import (
    LayerInfluence,
    PrintedConstants,
    causal_bound,
    influence_recursion,
    masked_recursion,
    printed,
    printed_shape_bound,
    printed_tight,
    single_exponential_bound,
    uniform_constants,
)
from bounds.lemma5.constants.model_constants import (
    ModelConstants,
    compose,
    read_constants,
)
from bounds.numbers.bound import Bound, Claim
from bounds.numbers.interval import interval, log, log_upper, upper
from bounds.numbers.notation import column_table, ruled
from jax_models import InputError, Transformer
from jax_models.arguments import choose_name, expect_integer, expect_length
from jax_models.format.model_check import check_model
from jax_models.model.mask import SIGHTS, Sight
from jax_models.run.device_memory import require_memory
from jax_models.run.evaluate import require_readout

AnyChange = TypeVar("AnyChange", Bound, Claim)


def carry_to_target(
    forms: dict[str, Any], constants: ModelConstants, target: str
) -> dict[str, Any]:
    """Bounds and claims on final rows' changes, carried over to the target's changes."""
    # A final LayerNorm and, for logits, the read-out act on each row by itself, so a
    # bound on the change of a row is multiplied by their Lipschitz constants. They are
    # no part of the layers: inside the uniform constants of C1 and C2 they would count
    # once per layer.
    maps, said = [], []
    if constants.final is not None:
        maps.append((constants.final.lipschitz, constants.final.change_cap))
        said.append("the final LayerNorm has Lipschitz constant at most max|γ|/√ε")
    if target == "logits":
        assert constants.readout is not None
        maps.append((constants.readout.lipschitz, constants.readout.change_cap))
        said.append("logits change by at most the norm of the read-out per unit")
    if not said:
        return forms
    symbol = "logits{}_{}" if target == "logits" else "LN(y{}_{})"
    gain, cap = compose(maps)

    def carried(change: AnyChange, row: str, capped: bool) -> AnyChange:
        value = -math.inf  # a factor of 0 wins, even over an infinite one
        if gain != 0 and change.log_value != -math.inf:
            value = upper(interval(change.log_value) + log(interval(gain)))
        if capped:
            value = min(value, log_upper(interval(cap)))
        before, moved = (symbol.format(prime, row) for prime in ("", "'"))
        return dataclasses.replace(
            change,
            log_value=value,
            quantity=f"|{before} - {moved}|" + (", j != i" if row == "j" else ""),
            hypotheses=(*change.hypotheses, "; ".join(said)),
        )

    found = dict(forms)
    for name, form in forms.items():
        if form is not None:
            # The saturating form alone is no multiple of D, and may be capped.
            capped = name == "corrected"
            others = carried(form.others, "j", capped)
            own = carried(form.own, "i", capped)
            found[name] = dataclasses.replace(form, others=others, own=own)
    return found


@dataclasses.dataclass(frozen=True)
class PrintedInfluence:
    """The claims of Hahn 2020 about the changes after layer k, which are no proved bounds.

    Attributes:
        others: The claim at every position but i.
        own: The claim at position i.
    """

    others: Claim
    own: Claim


@dataclasses.dataclass(frozen=True, repr=False)
class ClosedForms:
    """Upper bounds on the influence of one symbol, for all inputs of one length.

    Attributes:
        constants: The constants that the bounds were computed from.
        layer: k; the bounds are on the activations after k layers (for the last one,
            after the final norm and the read-out where there are any).
        query: j, counted from 0; only masked attention tells rows apart.
        corrected: The corrected recursion with its saturations, the best of them.
        linear: The corrected recursion without saturations, proportional to D.
        c1: Closed form C1 (`single_exponential_bound`); None under a mask.
        c2: Closed form C2 (`printed_shape_bound`); None under a mask.
        causal: The causal closed form, at the worst i; None for other masks or rows.
        printed: The printed constants, F read literally; None where the embeddings
            vanish and biases do not, which no printed F covers.
        printed_tight: The printed constants with the true norm bound for F.
    """

    constants: ModelConstants
    layer: int
    query: int
    corrected: LayerInfluence
    linear: LayerInfluence
    c1: LayerInfluence | None
    c2: LayerInfluence | None
    causal: LayerInfluence | None
    printed: PrintedInfluence | None
    printed_tight: PrintedInfluence

    def __repr__(self) -> str:
        """One line: where they hold, and the bounds at every position but i."""
        names = ("corrected", "c1", "c2", "causal")
        forms = {name: getattr(self, name) for name in names}
        forms["printed claim"] = self.printed
        said = [f"{x} <= {form.others.size}" for x, form in forms.items() if form]
        where = f"n = {self.constants.length}, layer {self.layer}, query {self.query}"
        return f"ClosedForms({where}: {', '.join(said)})"

    @property
    def hypotheses(self) -> tuple[str, ...]:
        """Hypotheses of the bounds, and notes on claims and absent forms."""
        said = "printed, printed_tight: claims of Hahn 2020, not proved"
        if self.constants.is_masked:
            said = (
                "printed, printed_tight: claims about attention without a mask, which "
                "this model has; C1 and C2 do not apply"
            )
        return *self.corrected.others.hypotheses, said


def closed_form_bounds(
    model: Transformer,
    length: int,
    *,
    query: int | None = None,
    target: PlainTarget = "activation",
) -> ClosedForms:
    """Bound the influence of one symbol on a model's output, for all inputs of a length.

    Without a mask neither time nor memory grows with the length: position encodings
    are looked at block by block, and in closed form where they are more than 2^24
    numbers. Under a mask every row has a bound of its own, O(n) numbers.

    Args:
        model: A transformer with softmax attention in every layer.
        length: n >= 2.
        query: j, the row that is read, from either end; by default a head's, else the last.
        target: "activation" or "logits".

    Returns:
        Every closed form for the last layer: at j != i (`others`) and at j = i (`own`).

    Raises:
        InputError: The model has no constants (see `read_constants`), no read-out for
            the target "logits", or no such row; the target is unknown; or a mask's
            recursion needs more memory than there is.

    Source:
        Hahn 2020, Lemma 5, printed and corrected.
    """
    choose_name("target", target, get_args(PlainTarget))
    query = choose_query(query, model)
    if target == "logits":
        require_readout(check_model(model))
        length = expect_length(length)
        check_head_row(model, target, [check_query(query, length)], length)
    constants = read_constants(model, length)
    return evaluate_closed_forms(constants, query=query, target=target)


def evaluate_closed_forms(
    constants: ModelConstants,
    *,
    query: int = -1,
    target: PlainTarget = "activation",
    layer: int | None = None,
) -> ClosedForms:
    """Evaluate the closed forms on constants that were read already.

    Args:
        constants: Constants of the model, from `read_constants`.
        query: j; negative ones count from the end.
        target: Output after the last layer, "activation" or "logits" (with a read-out).
        layer: k, of whose activations the bounds are; the last one by default.

    Returns:
        The closed forms after layer k.

    Raises:
        InputError: There is no such row, layer or read-out, or too little memory.
    """
    depth = len(constants.layers)
    layer = depth if layer is None else layer
    layer = expect_integer("layer", layer, 1, depth)
    if target == "logits" and constants.readout is None:
        raise InputError('target = "logits", but the model has no read-out')
    query = check_query(query, constants.length)
    layers, masks = constants.layers[:layer], constants.masks[:layer]
    n, distance = constants.length, constants.embedding.distance
    c1 = c2 = None
    if constants.is_masked:
        # One run covers every position i != j at once, since the changes of all rows
        # under every i stand for those under one: nothing is searched, nothing left out.
        require_memory(f"a closed form with masks for n = {n}", 250 * n)
        corrected, linear = (
            masked_recursion(layers, masks, n, distance, query=query, saturating=x)
            for x in (True, False)
        )
    else:
        corrected, linear = (
            influence_recursion(layers, n, distance, saturating=x)[-1]
            for x in (True, False)
        )
        uniform = uniform_constants(layers)
        c1 = single_exponential_bound(uniform, n, distance)
        c2 = printed_shape_bound(uniform, n, distance)
    # The causal closed form holds for one row, or its mirror image; i = 1 is the worst.
    ends = ({Sight(after=False)}, n - 1), ({Sight(before=False)}, 0)
    is_end = ({SIGHTS[mask] for mask in masks}, query) in ends
    literal, tight = _claims(constants, layer)
    forms: dict[str, Any] = {
        "corrected": corrected,
        "linear": linear,
        "c1": c1,
        "c2": c2,
        "causal": causal_bound(layers, n, 0, distance) if is_end else None,
        "printed": literal,
        "printed_tight": tight,
    }
    if layer == depth:
        forms = carry_to_target(forms, constants, target)
    return ClosedForms(constants=constants, layer=layer, query=query, **forms)


def _claims(
    constants: ModelConstants, layer: int
) -> tuple[PrintedInfluence | None, PrintedInfluence]:
    """Printed claims after a layer, with the literal F (or None) and with the tight one."""
    uniform, growth = uniform_constants(constants.layers), constants.growth()
    shared: dict[str, Any] = {
        "scores": [head.score for layer in constants.layers for head in layer.heads],
        "output_lipschitz": uniform.output_lipschitz,
        "num_heads": uniform.num_heads,
    }
    distance, depth = constants.embedding.distance, uniform.num_layers

    def claim(reading: PrintedConstants) -> PrintedInfluence:
        others = reading.others(layer, constants.length, distance)
        return PrintedInfluence(others, reading.own(layer, distance))

    tight = claim(printed_tight(**shared, norm=constants.attended_norm(depth)))
    # No printed F covers biases where the embeddings vanish.
    if growth is None:
        return None, tight
    shared |= {"embedding_norm": constants.embedding.separate, "num_layers": depth}
    return claim(printed(**shared, growth=growth)), tight


def _row(forms: ClosedForms) -> dict[str, Any]:
    """Table row for one length and layer: constants, and decimal logarithms of the bounds."""

    def log10(form: LayerInfluence | PrintedInfluence | None) -> float | None:
        return None if form is None else form.others.log10_value

    constants, layer = forms.constants, forms.layer
    row = {
        "n": constants.length,
        "layer": layer,
        "query": forms.query,
        "F": constants.attended_norm(layer),
        "A": constants.half_oscillation(layer),
        "D": constants.embedding.distance,
        "abar": constants.attention_weight(layer, forms.query),
        "log10_half_weight": constants.log10_half_weight(layer),
        "log10_printed": log10(forms.printed),
        "log10_printed_tight": log10(forms.printed_tight),
        "log10_corrected": log10(forms.corrected),
        "log10_corrected_linear": log10(forms.linear),
        "log10_corrected_own": forms.corrected.own.log10_value,
        "log10_c1": log10(forms.c1),
        "log10_c2": log10(forms.c2),
        "log10_causal": log10(forms.causal),
    }
    # A sentence for each reason why JSON writes null.
    reasons = ("does not apply", None), ("the bound is zero", -math.inf)
    nulls = [
        f"null, {meaning}: {', '.join(names)}"
        for meaning, absent in (*reasons, ("beyond every float", math.inf))
        if (names := [name for name, value in row.items() if value == absent])
    ]
    return {**row, "hypotheses": [*forms.hypotheses, *nulls]}


def constants_rows(
    model: Transformer, length: int, query: int | None, target: PlainTarget
) -> list[dict[str, Any]]:
    """Table rows of a model's constants and bounds at a length, one for each layer."""
    known, layers = read_constants(model, length), range(1, len(model.layers) + 1)
    asked: Any = {"query": query, "target": target}
    return [_row(evaluate_closed_forms(known, layer=k, **asked)) for k in layers]


def record_rows(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """JSON record of table rows; infinite entries are named, since JSON has no infinity."""
    endless = [
        {str(x): [k for k, v in row.items() if v == x] for x in (math.inf, -math.inf)}
        for row in rows
    ]
    return {"rows": [{**x, "endless": y} for x, y in zip(rows, endless, strict=True)]}


def read_rows(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Table rows of a JSON record, their infinite entries restored; changes the record."""
    for row in record["rows"]:
        for end, names in row.pop("endless").items():
            row |= dict.fromkeys(names, float(end))
    return record["rows"]


WIDTH = 88
# Header and key of each column of the report.
TABLE = (
    *((name, name) for name in ("n", "layer", "F", "A", "D", "abar")),
    *(("n_half", "log10_half_weight"), ("corrected", "log10_corrected")),
    *(("linear", "log10_corrected_linear"), ("C1", "log10_c1"), ("C2", "log10_c2")),
    *(("causal", "log10_causal"), ("tight", "log10_printed_tight")),
    ("printed", "log10_printed"),
)


def constants_report(rows: list[dict[str, Any]]) -> str:
    """Text on constants: definitions, the table, then a sentence for each condition."""
    intro = (
        "Bounds on the influence of one symbol, for all inputs of n tokens, as decimal "
        f"logarithms; the last of {rows[-1]['layer']} layers is the output. F bounds what "
        "the attention reads, A (nats) half the range of a row of its logits, D the "
        "distance of two embeddings, abar a weight; n_half = 1 + e^(2A), a logarithm too, "
        "is the n at which the bound on a weight of a row of n is 1/2, about where "
        "constants begin to fall."
    )
    notes = ["printed, tight: claims of Hahn 2020, not proved."]
    if any(row["log10_c1"] is None for row in rows):
        notes.append(
            "C1 and C2 need attention without a mask; corrected is the masked "
            f"recursion at the query, position {rows[-1]['query']} in the last row."
        )
    table = ruled(column_table(rows, TABLE, ".5g"))
    intro, *notes = (textwrap.fill(text, WIDTH) for text in (intro, *notes))
    return "\n".join(["", intro, *table, *notes])

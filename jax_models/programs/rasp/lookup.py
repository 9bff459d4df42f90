"""Lookups: the rightmost or leftmost position that satisfies a predicate, by one head.

The score is n times a sum of criteria, each an integer that is greatest where its part
of the predicate holds, plus or minus the position. Two positions that differ in the sum
differ by n - (n - 1) >= 1 at least, two that agree in it by 1: the head is tieless with
gap 1 whether or not a position satisfies the predicate. Whether it does is checked on
what the head brings back.

Source:
    docs/rasp.md, section 5.
"""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence

from jax_models.programs.grammar import children, map_children
from jax_models.programs.rasp import syntax
from jax_models.programs.rasp.arithmetic import (
    as_boolean,
    as_integer,
    choose,
    conjunction,
    difference,
    is_zero,
    magnitude,
    num_segments,
    segments,
    squares,
    times_length,
)
from jax_models.programs.rasp.plan import (
    AffineForm,
    Circuit,
    IntegerValue,
    Polynomial,
    SymbolValue,
    Value,
    constant,
)
from jax_models.programs.rasp.syntax import (
    And,
    Boolean,
    Compare,
    Conditional,
    Expression,
    Lookup,
    Not,
    Or,
    indices,
    without_index,
)

MOST_SEGMENTS = 64
MOST_ROW_CONDITIONS = 6

Lower = Callable[[Expression], Value]
BIT: Polynomial = (1,)


@dataclasses.dataclass(frozen=True)
class _Criterion:
    """A part of a predicate: components of the score, and its check."""

    score: tuple[tuple[AffineForm, AffineForm], ...]
    fetched: tuple[tuple[AffineForm, Polynomial], ...]
    check: Callable[[Sequence[AffineForm]], AffineForm]  # from what was fetched
    # A row that sees nothing fetches zeros; does the check then fail by itself?
    fails_on_zeros: bool


def look_up(
    circuit: Circuit,
    node: Lookup,
    # makes a value of an expression without indices
    lower: Lower,
    # of an expression of the predicate
    is_boolean: Callable[..., bool],
) -> Value:
    """Returns the value of a lookup at every position."""
    criteria, conditions, tests = [], [], []
    for part in _conjuncts(node.predicate):
        if indices(part) <= {"i"}:
            conditions.append(as_boolean(lower(without_index(part))))
        elif _compares_ends(part, is_boolean):
            criteria.append(_equality(circuit, part, lower))
        else:
            tests.append(part)
    if tests:
        whole = tests[0] if len(tests) == 1 else And(node.place, tuple(tests))
        criteria.append(_test(circuit, whole, lower, is_boolean))

    sign = 1 if node.side == "right" else -1
    score = [pair for one in criteria for pair in one.score]
    score.append((constant(1), circuit.position(1, 0, 1) * sign))
    fetched = [value for one in criteria for value in one.fetched]
    strict = node.mask.startswith("strict")
    if strict and not any(one.fails_on_zeros for one in criteria):
        fetched.append((constant(1), BIT))
        seen = True
    else:
        seen = False
    value = lower(without_index(node.value))
    bound = magnitude(value.range) if isinstance(value, IntegerValue) else BIT
    carried = [(form, bound) for form in children(value) if not form.is_constant]
    found = circuit.attend(
        f"{node.side}most position", node.mask, score, [*fetched, *carried]
    )
    at = 0
    for one in criteria:
        conditions.append(one.check(found[at : at + len(one.fetched)]))
        at += len(one.fetched)
    if seen:
        conditions.append(found[at])
    # What is constant stays so at the position attended to.
    left = iter(found[len(fetched) :])
    brought = map_children(lambda form: form if form.is_constant else next(left), value)
    default = lower(node.default)
    if strict and isinstance(brought, IntegerValue):
        return _choose_or_nothing(circuit, conditions, brought, default)
    return choose(circuit, conditions, brought, default)


def _choose_or_nothing(
    circuit: Circuit,
    conditions: Sequence[AffineForm],
    brought: IntegerValue,
    default: Value,
) -> IntegerValue:
    """`choose`, where a row that sees nothing brings back 0.

    The range need not hold 0, and the choice must be shut for that too.
    """
    wide = syntax.joined(brought.range, syntax.exactly(0))
    chosen = choose(circuit, conditions, IntegerValue(brought.form, wide), default)
    found = syntax.joined(brought.range, as_integer(default).range)
    return IntegerValue(as_integer(chosen).form, found)


def _conjuncts(node: Expression) -> list[Expression]:
    if isinstance(node, And):
        return [part for operand in node.operands for part in _conjuncts(operand)]
    return [] if node == Boolean(node.place, True) else [node]


def _compares_ends(node: Expression, is_boolean: Callable[..., bool]) -> bool:
    """Whether it says that a number or symbol at i is one at j."""
    if not isinstance(node, Compare) or node.operator != "=":
        return False
    sides = {indices(node.left), indices(node.right)}
    ends = sides == {frozenset("i"), frozenset("j")}
    return ends and not (is_boolean(node.left) and is_boolean(node.right))


def _equality(circuit: Circuit, node: Expression, lower: Lower) -> _Criterion:
    assert isinstance(node, Compare)
    sides = sorted((node.left, node.right), key=lambda side: min(indices(side)))
    row, column = (lower(without_index(side)) for side in sides)
    if isinstance(row, SymbolValue) and isinstance(column, SymbolValue):
        return _same_symbol(circuit, row, column)
    return _same_integer(circuit, node, as_integer(row), as_integer(column))


def _same_symbol(circuit: Circuit, row: SymbolValue, column: SymbolValue) -> _Criterion:
    """The score n times the sum over symbols of [x is s at i] [y is s at j]."""
    shared = [symbol for symbol in row.symbols if symbol in column.symbols]
    if not shared:
        return _Criterion((), (), lambda fetched: constant(0), True)
    return _pairing(
        circuit,
        [row.form(symbol) for symbol in shared],
        [column.form(symbol) for symbol in shared],
    )


def _pairing(
    circuit: Circuit, at_row: Sequence[AffineForm], at_column: Sequence[AffineForm]
) -> _Criterion:
    """The score n sum_s u_s(i) v_s(j), of Booleans u of which at most one is true."""
    fetched = tuple((v, BIT) for v in at_column)
    if list(at_row) == [constant(1)]:
        length = circuit.position(0, 1, 1)
        score = ((length, at_column[0]),)
        return _Criterion(score, fetched, lambda fetched: fetched[0], True)

    def check(fetched: Sequence[AffineForm]) -> AffineForm:
        parts = zip(at_row, fetched, strict=True)
        return circuit.rectify([(u + v - 1, 1) for u, v in parts], BIT)

    score = tuple(
        (u, times_length(circuit, v)) for u, v in zip(at_row, at_column, strict=True)
    )
    return _Criterion(score, fetched, check, True)


def _same_integer(
    circuit: Circuit, node: Compare, row: IntegerValue, column: IntegerValue
) -> _Criterion:
    """The score n sum_k (2 A_k B_k - B_k^2) of thermometers A of a(i), B of b(j)."""
    number = num_segments(column.range)
    if number > MOST_SEGMENTS:
        node.place.fail(
            f"the integer at j ranges over {column.range}, which takes {number} "
            f"segments of n - 1 and as many heads; at most {MOST_SEGMENTS} are made"
        )
    low = column.range.low
    scaled, squared = squares(circuit, segments(circuit, column.form, low, number))
    ours = segments(circuit, row.form, low, number)
    score = [(a * 2, b) for a, b in zip(ours, scaled, strict=True)]
    score.append((constant(1), -squared))

    def check(fetched: Sequence[AffineForm]) -> AffineForm:
        there = IntegerValue(fetched[0], column.range)
        # A row that sees nothing fetches 0, which the range need not hold.
        apart = difference(row, there)
        return is_zero(
            circuit,
            IntegerValue(apart.form, syntax.joined(apart.range, row.range)),
        )

    fetched = ((column.form, magnitude(column.range)),)
    return _Criterion(tuple(score), fetched, check, False)


def _test(
    circuit: Circuit, node: Expression, lower: Lower, is_boolean: Callable[..., bool]
) -> _Criterion:
    """A Boolean combination of Booleans at i and at j.

    For every assignment of the Booleans at i what is left is a Boolean at j; the
    assignments that leave the same one are a group, and the score is n times the sum
    over groups of [the assignment is in it] [what it leaves].
    """
    rows = list(dict.fromkeys(_atoms(node, is_boolean)))
    if len(rows) > MOST_ROW_CONDITIONS:
        node.place.fail(
            f"the predicate mixes {len(rows)} conditions at i with conditions at j; "
            f"give combinations names, so that at most {MOST_ROW_CONDITIONS} are left"
        )
    conditions = [as_boolean(lower(without_index(row))) for row in rows]
    groups: dict[AffineForm, list[AffineForm]] = {}
    for assignment in itertools.product((False, True), repeat=len(rows)):
        settled = _settle(node, dict(zip(rows, assignment, strict=True)))
        column = as_boolean(lower(without_index(settled)))
        literals = [
            form if true else -form + 1
            for form, true in zip(conditions, assignment, strict=True)
        ]
        groups.setdefault(column, []).append(conjunction(circuit, literals))
    if len(groups) == 1:
        return _pairing(circuit, [constant(1)], list(groups))
    groups.pop(constant(0), None)
    at_row = [sum(forms[1:], start=forms[0]) for forms in groups.values()]
    return _pairing(circuit, at_row, list(groups))


def _atoms(node: Expression, is_boolean: Callable[..., bool]) -> list[Expression]:
    """The largest Booleans of a predicate that are at i alone."""
    if indices(node) == {"i"}:
        return [node]
    if indices(node) <= {"j"}:
        return []
    parts, connective = children(node), isinstance(node, Not | And | Or | Conditional)
    if isinstance(node, Compare) and node.operator == "=":
        connective = all(map(is_boolean, parts))
    if connective:
        return [atom for part in parts for atom in _atoms(part, is_boolean)]
    node.place.fail(
        "a predicate compares a number or symbol at i with one at j by '=' alone, and "
        "only as a whole or as a part of a conjunction (x(i) = y(j) and ...)"
    )


def _settle(node: Expression, values: Mapping[Expression, bool]) -> Expression:
    """The predicate with its Booleans at i replaced by their values."""
    if node in values:
        return Boolean(node.place, values[node])
    return map_children(lambda part: _settle(part, values), node)

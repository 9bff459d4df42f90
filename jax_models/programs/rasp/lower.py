"""Lowers a checked program to a plan, in one pass over the names that its result needs.

Every name is lowered once. A Boolean becomes a form of value 0 or 1, an integer a form of
integer value with its range, a symbol one Boolean for each that it can be. A prefix sum is
the sum of values at positions j <= i. Segments are parts of an integer, each from 0 to n -
1. A lookup is one tieless head (one best key), whose score is n times a sum of criteria,
one for each part of its predicate, plus or minus the position; whether a position satisfies
its predicate is checked on the values that the head fetches. In a predicate i is the row
that looks up and j a position that it may attend to.

Source: docs/rasp.md, section 5.
"""

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from typing import ClassVar, TypeGuard

import jax

from jax_models.programs.circuit import Plan
from jax_models.programs.forms import ONE, LinearForm, Polynomial, constant
from jax_models.programs.grammar import Tree, walk
from jax_models.programs.rasp import syntax
from jax_models.programs.rasp.arithmetic import (
    Arithmetic,
    Forms,
    Value,
    difference,
    magnitude,
    num_segments,
)
from jax_models.programs.rasp.syntax import (
    BooleanType,
    CheckedProgram,
    Constant,
    Expression,
    IntegerType,
    Operation,
    Sum,
    SymbolType,
)

MOST_SEGMENTS = 64
MOST_ROW_CONDITIONS = 6
# Each takes two heads and some coordinates.
MOST_THRESHOLDS = 256


@dataclasses.dataclass(frozen=True)
class _Criterion:
    """Part of a lookup's predicate: score terms, values that its head fetches, a check."""

    score: tuple[tuple[LinearForm, LinearForm], ...]
    fetched: tuple[tuple[LinearForm, Polynomial], ...]
    check: Callable[[Forms], LinearForm]  # from what was fetched
    # A row that sees nothing fetches zeros; does the check then fail by itself?
    fails_on_zeros: bool


@dataclasses.dataclass(frozen=True)
class ProgramPlan(Plan):
    """Coordinates, with bounds on their magnitudes, and layers of a compiled program.

    The best score of every head that is not uniform is at least `gap` above all others in
    real arithmetic, for every input and every row that sees two positions or more.

    Source:
        docs/rasp.md, Theorem.
    """

    result: Value
    gap: ClassVar = 1


def plan_program(program: CheckedProgram) -> ProgramPlan:
    """Returns the layers, heads and neurons of a program.

    Args:
        program: from `check_program`.

    Returns:
        The plan, which holds for every length.

    Raises:
        InputError: for a lookup whose predicate no single head decides, or which takes
            too many heads, and for a prefix sum of an integer of too wide a range.
    """
    lowering = _Lowering(program)
    # In the order of the text, so that a long chain of names is no deep recursion.
    needed = _needed(program)
    for name, expression in program.definitions.items():
        if name in needed:
            lowering.value(expression)
    result = lowering.value(program.result)
    return ProgramPlan(*lowering.finish(), result)


def _needed(program: CheckedProgram) -> set[str]:
    """The names of variables that the program's result depends on."""
    needed = {program.result.name}
    for name, expression in reversed(tuple(program.definitions.items())):
        if name in needed:
            parts = walk(expression)
            needed |= {part.name for part in parts if isinstance(part, syntax.Variable)}
    return needed


def _conjuncts(node: Expression) -> list[Expression]:
    match node:
        case Operation(_, "and", operands):
            return [part for operand in operands for part in _conjuncts(operand)]
        case Constant(_, True):
            return []
    return [node]


def _settle(node: Expression, values: Mapping[Expression, bool]) -> Expression:
    """The predicate with its Booleans at i replaced by the truth values `values`."""
    if node in values:
        return Constant(node.place, values[node], BooleanType())
    is_node = lambda part: isinstance(part, Tree)
    put = lambda part: _settle(part, values) if is_node(part) else part
    return type(node)(*jax.tree.map(put, (*vars(node).values(),), is_leaf=is_node))


class _Lowering(Arithmetic):
    """Values of a program's expressions in one circuit, each computed once."""

    def __init__(self, program: CheckedProgram) -> None:
        super().__init__(program.alphabet)
        self.program = program
        self._values: dict[Expression, Value] = {}

    def value(self, node: Expression) -> Value:
        if node not in self._values:
            # Predicates at j, from which Booleans at i were taken, are Booleans too.
            found = self.program.types.get(node, BooleanType())
            self._values[node] = Value(found, self._forms(node))
        return self._values[node]

    def form(self, node: Expression) -> LinearForm:
        return self.value(node).form

    def _forms(self, node: Expression) -> Forms:
        match node:
            case syntax.Variable(name=syntax.INPUT):
                return tuple(map(self.symbol, self.program.alphabet))
            case syntax.Variable(name=syntax.POSITION):
                return (self.position(1, 0),)
            case syntax.Variable(name=name):
                return self.value(self.program.definitions[name]).forms
            case Constant(value=value):
                return (constant(1 if isinstance(value, str) else int(value)),)
            case Operation(_, "not", (operand,)):
                return (-self.form(operand) + 1,)
            case Operation(_, "and" | "or" as name, operands):
                join = self.conjunction if name == "and" else self.disjunction
                return (join([*map(self.form, operands)]),)
            case Operation(_, "in", (operand, *symbols)):
                forms = self.value(operand).by_symbol
                names = {one.value for one in symbols if isinstance(one, Constant)}
                return (LinearForm(*(forms[x] for x in forms if x in names)),)
            case Operation(_, "if", (condition, first, second)):
                values = map(self.value, (first, second))
                return self.choose([self.form(condition)], *values)
            case Operation(_, "psum", (operand,)):
                return (self._prefix_sum(operand),)
            case Operation(_, name, operands):
                return (self._compare(name, *map(self.value, operands)),)
            case Sum(terms=terms):
                return (LinearForm(*(self.form(term) * k for k, term in terms)),)
            case syntax.Lookup():
                return self._look_up(node)

    def _is_boolean(self, node: Expression) -> bool:
        return isinstance(self.program.types[node], syntax.BooleanType)

    def _compare(self, operator: str, left: Value, right: Value) -> LinearForm:
        if isinstance(left.type, SymbolType):
            both = right.by_symbol
            alike = ((ours, both.get(x)) for x, ours in left.by_symbol.items())
            pairs = [(ours, theirs) for ours, theirs in alike if theirs is not None]
            return LinearForm(*map(self.conjunction, pairs))
        if operator == "=":
            if left.type == right.type == BooleanType():
                return self.both_or_neither(left.form, right.form)
            return self.is_zero(difference(left, right))
        more = (left, right) if operator in (">", "<=") else (right, left)
        found = self.at_least_one(difference(*more))
        return -found + 1 if operator.endswith("=") else found

    def _prefix_sum(self, node: Expression) -> LinearForm:
        """Form of the prefix sum of an expression; that of a sum is formed term by term."""
        match node:
            case Sum(terms=terms):
                parts = (self._prefix_sum(term) * factor for factor, term in terms)
                return LinearForm(*parts)
            case Constant(_, int(value)):
                return self.position(1, 0) * value
        value = self.value(node)
        if value.type == BooleanType():
            return self.count(value.form)
        steps = value.range.high.offset - value.range.low.offset
        if steps > MOST_THRESHOLDS:
            node.place.fail(
                f"psum counts one Boolean for each of {steps} steps of {value.range}, "
                f"with two heads each; at most {MOST_THRESHOLDS} are made: sum the "
                "Booleans and multiply, as in 3 * psum[j<=i] b"
            )
        return self.count_thresholds(value)

    def _look_up(self, node: syntax.Lookup) -> Forms:
        """Forms of a lookup's value at every position; `InputError` if no head finds it."""
        criteria, conditions, tests = [], [], []
        for part in _conjuncts(node.predicate):
            if syntax.indices(part) <= {"i"}:
                conditions.append(self.form(part))
            elif self._compares_ends(part):
                criteria.append(self._equality(part))
            else:
                tests.append(part)
        if tests:
            together = Operation(node.place, "and", tuple(tests))
            criteria.append(self._test(tests[0] if len(tests) == 1 else together))

        sign = 1 if node.side == "right" else -1
        strict = node.mask.startswith("strict")
        if strict and not any(one.fails_on_zeros for one in criteria):
            seen = ((constant(1), ONE),)
            criteria.append(_Criterion((), seen, lambda fetched: fetched[0], True))
        score = [pair for one in criteria for pair in one.score]
        score.append((constant(1), self.position(1, 0) * sign))
        fetched = [value for one in criteria for value in one.fetched]
        value = self.value(node.value)
        symbolic = isinstance(value.type, SymbolType)
        bound = ONE if symbolic else magnitude(value.range)
        carried = [(form, bound) for form in value.forms if form.variables]
        values = [*fetched, *carried]
        left = iter(self.attend(f"{node.side}most position", node.mask, score, values))
        for one in criteria:
            conditions.append(one.check([next(left) for _ in one.fetched]))
        # What is constant stays so at the position attended to.
        forms = tuple(next(left) if form.variables else form for form in value.forms)
        brought = value.type
        if strict and isinstance(brought, IntegerType) and brought != BooleanType():
            # A row that sees no key has 0, which the range for `choose` has to include.
            brought = syntax.joined(value.range, syntax.exactly(0))
        default = self.value(node.default)
        return self.choose(conditions, Value(brought, forms), default)

    def _compares_ends(self, node: Expression) -> TypeGuard[Operation]:
        """Whether a predicate equates a number or symbol at i with one at j."""
        if not isinstance(node, Operation) or node.operator != "=":
            return False
        ends = {*map(syntax.indices, node.operands)} == {frozenset("i"), frozenset("j")}
        return ends and not all(map(self._is_boolean, node.operands))

    def _equality(self, node: Operation) -> _Criterion:
        sides = sorted(node.operands, key=lambda side: min(syntax.indices(side)))
        row, column = map(self.value, sides)
        if not isinstance(row.type, SymbolType):
            return self._same_integer(node, row, column)
        # The score is n times the sum over symbols s of [x(i) = s] [y(j) = s].
        ours, theirs = row.by_symbol, column.by_symbol
        shared = [symbol for symbol in ours if symbol in theirs]
        if not shared:
            return _Criterion((), (), lambda fetched: constant(0), True)
        return self._pairing([ours[x] for x in shared], [theirs[x] for x in shared])

    def _pairing(self, at_row: Forms, at_column: Forms) -> _Criterion:
        """Criterion of score n sum_s u_s(i) v_s(j), of Booleans u with at most one true."""
        fetched = tuple((v, ONE) for v in at_column)
        if list(at_row) == [constant(1)]:
            score = ((self.position(0, 1), at_column[0]),)
            return _Criterion(score, fetched, lambda fetched: fetched[0], True)

        def check(fetched: Forms) -> LinearForm:
            parts = zip(at_row, fetched, strict=True)
            return self.rectify([(u + v - 1, 1) for u, v in parts], ONE)

        pairs = zip(at_row, at_column, strict=True)
        score = tuple((u, self.times_length(v)) for u, v in pairs)
        return _Criterion(score, fetched, check, True)

    def _same_integer(self, node: Operation, row: Value, column: Value) -> _Criterion:
        """Criterion of score n sum_k (2 A_k B_k - B_k^2), segments A at i, B at j."""
        number = num_segments(column.range)
        if number > MOST_SEGMENTS:
            node.place.fail(
                f"the integer at j is {column.range}, which takes "
                f"{number} segments of n - 1 and as many heads; at most {MOST_SEGMENTS} "
                "are made"
            )
        low = column.range.low
        theirs = [self.square(x) for x in self.segments(column.form, low, number)]
        ours = self.segments(row.form, low, number)
        score = [(a * 2, times) for a, (times, _) in zip(ours, theirs, strict=True)]
        score.append((constant(1), -LinearForm(*(square for _, square in theirs))))

        def check(fetched: Forms) -> LinearForm:
            # A row that sees nothing fetches 0, which the range need not hold.
            apart = difference(row, Value(column.type, (fetched[0],)))
            wide = syntax.joined(apart.range, row.range)
            return self.is_zero(Value(wide, apart.forms))

        fetched = ((column.form, magnitude(column.range)),)
        return _Criterion(tuple(score), fetched, check, False)

    def _test(self, node: Expression) -> _Criterion:
        """Criterion of a Boolean combination of Booleans at i and at j.

        Every assignment of the Booleans at i leaves a Boolean at j. Assignments that leave
        the same Boolean are a group, and the score is n times the sum over groups of
        [the assignment at i is in the group] [the Boolean at j is true].
        """
        rows = list(dict.fromkeys(self._atoms(node)))
        if len(rows) > MOST_ROW_CONDITIONS:
            node.place.fail(
                f"the predicate mixes {len(rows)} conditions at i with conditions at j; "
                f"give combinations names, so that at most {MOST_ROW_CONDITIONS} are left"
            )
        conditions = [*map(self.form, rows)]
        literal = lambda form, true: form if true else -form + 1
        groups: dict[LinearForm, list[LinearForm]] = {}
        for assignment in itertools.product((False, True), repeat=len(rows)):
            column = self.form(_settle(node, dict(zip(rows, assignment, strict=True))))
            literals = [*map(literal, conditions, assignment)]
            groups.setdefault(column, []).append(self.conjunction(literals))
        if len(groups) == 1:
            return self._pairing([constant(1)], list(groups))
        groups.pop(constant(0), None)
        at_row = [LinearForm(*forms) for forms in groups.values()]
        return self._pairing(at_row, list(groups))

    def _atoms(self, node: Expression) -> list[Expression]:
        """The largest Boolean parts of a predicate whose variables are all at i."""
        if syntax.indices(node) == {"i"}:
            return [node]
        if syntax.indices(node) <= {"j"}:
            return []
        if isinstance(node, Operation) and (
            node.operator in ("not", "and", "or", "if")
            or (node.operator == "=" and all(map(self._is_boolean, node.operands)))
        ):
            return [atom for part in node.operands for atom in self._atoms(part)]
        node.place.fail(
            "a predicate compares a number or symbol at i with one at j by '=' alone, and "
            "only as a whole or as a part of a conjunction (x(i) = y(j) and ...)"
        )

"""From a checked program to a plan: one pass over what its result depends on.

Every name is lowered once. A Boolean becomes a form of value 0 or 1, an integer a form
of integer value with its range, a symbol one Boolean for each that it can be.

Source:
    docs/rasp.md.
"""

from jax_models.programs.grammar import walk
from jax_models.programs.rasp import syntax
from jax_models.programs.rasp.arithmetic import (
    as_boolean,
    as_integer,
    at_least_one,
    both_or_neither,
    choose,
    conjunction,
    count,
    count_thresholds,
    difference,
    disjunction,
    is_zero,
)
from jax_models.programs.rasp.check import CheckedProgram
from jax_models.programs.rasp.lookup import look_up
from jax_models.programs.rasp.plan import (
    AffineForm,
    BooleanValue,
    Circuit,
    IntegerValue,
    ProgramPlan,
    SymbolValue,
    Value,
    constant,
    total,
)
from jax_models.programs.rasp.syntax import (
    INPUT,
    POSITION,
    And,
    Boolean,
    BooleanType,
    Compare,
    Conditional,
    Expression,
    Integer,
    Lookup,
    Member,
    Not,
    Or,
    PrefixSum,
    Sum,
    Symbol,
    Variable,
)

# Each takes two heads and some coordinates.
MOST_THRESHOLDS = 256


def plan_program(program: CheckedProgram) -> ProgramPlan:
    """Returns the layers, heads and neurons of a program.

    Args:
        program: from `check_program`.

    Returns:
        The plan, which holds for every length.

    Raises:
        InputError: for a lookup whose predicate has no head (`lookup.look_up`), and for
            a prefix sum of an integer of too wide a range.
    """
    lowering = _Lowering(program)
    # In the order of the text, so that a long chain of names is no deep recursion.
    needed = _needed(program)
    for name, expression in program.definitions.items():
        if name in needed:
            lowering.value(expression)
    return lowering.circuit.plan(lowering.value(program.result))


def _needed(program: CheckedProgram) -> set[str]:
    """The names that the result depends on."""
    needed = {program.result.name}
    for name, expression in reversed(tuple(program.definitions.items())):
        if name in needed:
            parts = walk(expression)
            needed |= {part.name for part in parts if isinstance(part, Variable)}
    return needed


class _Lowering:
    """Values of expressions, each made once."""

    def __init__(self, program: CheckedProgram) -> None:
        self.program = program
        self.circuit = Circuit(program.alphabet)
        self._values: dict[Expression, Value] = {}

    def value(self, node: Expression) -> Value:
        if node not in self._values:
            self._values[node] = self._value(node)
        return self._values[node]

    def form(self, node: Expression) -> AffineForm:
        return as_boolean(self.value(node))

    def _value(self, node: Expression) -> Value:
        match node:
            case Variable(name=name):
                return self._variable(name)
            case Boolean(value=value):
                return BooleanValue(constant(value))
            case Integer(value=value):
                return IntegerValue(constant(value), syntax.exactly(value))
            case Symbol(value=value):
                return SymbolValue((value,), (constant(1),))
            case Not(operand=operand):
                return BooleanValue(-self.form(operand) + 1)
            case And(operands=operands) | Or(operands=operands):
                join = conjunction if isinstance(node, And) else disjunction
                return BooleanValue(join(self.circuit, [*map(self.form, operands)]))
            case Member(operand=operand, symbols=symbols):
                of = self.value(operand)
                assert isinstance(of, SymbolValue)
                forms = (of.form(symbol) for symbol in dict.fromkeys(symbols))
                return BooleanValue(total(forms))
            case Compare():
                return BooleanValue(self._compare(node))
            case Sum(terms=terms):
                return self._sum(terms)
            case Conditional(condition=condition, first=first, second=second):
                return choose(
                    self.circuit,
                    [self.form(condition)],
                    self.value(first),
                    self.value(second),
                )
            case PrefixSum(operand=operand):
                found = syntax.prefix_summed(as_integer(self.value(operand)).range)
                return IntegerValue(self._prefix_sum(operand), found)
            case Lookup():
                return look_up(self.circuit, node, self.value, self._is_boolean)

    def _variable(self, name: str) -> Value:
        if name == INPUT:
            return SymbolValue(self.program.alphabet, self.circuit.symbols)
        if name == POSITION:
            return IntegerValue(self.circuit.position(1, 0, 1), syntax.POSITIONS)
        return self.value(self.program.definitions[name])

    def _is_boolean(self, node: Expression) -> bool:
        return isinstance(self.program.types[node], BooleanType)

    def _compare(self, node: Compare) -> AffineForm:
        left, right = self.value(node.left), self.value(node.right)
        if isinstance(left, SymbolValue) and isinstance(right, SymbolValue):
            pairs = ((left.form(one), right.form(one)) for one in left.symbols)
            return total(conjunction(self.circuit, pair) for pair in pairs)
        booleans = isinstance(left, BooleanValue) and isinstance(right, BooleanValue)
        if booleans and node.operator == "=":
            both = (as_boolean(left), as_boolean(right))
            return both_or_neither(self.circuit, *both)
        first, second = as_integer(left), as_integer(right)
        if node.operator == "=":
            return is_zero(self.circuit, difference(first, second))
        more = (first, second) if node.operator in (">", "<=") else (second, first)
        found = at_least_one(self.circuit, difference(*more))
        return -found + 1 if node.operator.endswith("=") else found

    def _sum(self, terms: tuple[tuple[int, Expression], ...]) -> IntegerValue:
        form, found = constant(0), syntax.exactly(0)
        for factor, term in terms:
            part = as_integer(self.value(term))
            form, found = form + part.form * factor, found + factor * part.range
        return IntegerValue(form, found)

    def _prefix_sum(self, node: Expression) -> AffineForm:
        """A sum is taken apart: each Boolean in it is counted."""
        match node:
            case Sum(terms=terms):
                parts = (self._prefix_sum(term) * factor for factor, term in terms)
                return total(parts)
            case Integer(value=value):
                return self.circuit.position(1, 0, 1) * value
        value = self.value(node)
        if isinstance(value, BooleanValue):
            return count(self.circuit, value.form)
        assert isinstance(value, IntegerValue)
        steps = value.range.high.offset - value.range.low.offset
        if steps > MOST_THRESHOLDS:
            node.place.fail(
                f"psum counts one Boolean for each of {steps} steps of this "
                f"{value.range}, with two heads each; at most {MOST_THRESHOLDS} are "
                "made: sum the Booleans and multiply, as in 3 * psum[j<=i] b"
            )
        return count_thresholds(self.circuit, value)

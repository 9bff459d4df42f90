"""Random formulas, and their truth straight from the definition of each operator."""

from jax_models.programs.logic import syntax
from jax_models.programs.logic.applications import at_least_one

UNARY = {"not": syntax.Not, "previous": syntax.Previous, "next": syntax.Next}
BINARY = {
    "and": syntax.And,
    "or": syntax.Or,
    "since": syntax.Since,
    "until": syntax.Until,
}
SIDES = ("prefix", "suffix")
# Everything that a formula can be made of; leave some out for a mode that lacks it.
OPERATORS = (*UNARY, *BINARY, *SIDES, "compare", "of_count", "at_position")
PREDICATES = [syntax.Predicate(m, (r,)) for m in (2, 3, 5) for r in range(m)]
PREDICATES.append(syntax.Predicate(4, (0, 3)))


def random_formula(rng, depth, symbols=("a", "b"), without=()):
    """Draw a formula whose operators are nested at most `depth` deep."""
    usable = [name for name in OPERATORS if name not in without]
    if not set(SIDES) & set(usable):
        usable = [name for name in usable if name not in ("compare", "of_count")]
    inner = [name for name in usable if name not in (*SIDES, "at_position")]
    # A leaf is rare where there is depth left, so that most formulas are deep.
    if not depth or not inner or rng.random() < 0.1:
        return _leaf(rng, symbols, usable)
    kind = inner[rng.integers(len(inner))]

    def below():
        return random_formula(rng, depth - 1, symbols, without)

    def count():
        sides = [side for side in SIDES if side in usable]
        return syntax.Count(sides[rng.integers(len(sides))], below())

    if kind in UNARY:
        return UNARY[kind](below())
    if kind in BINARY:
        return BINARY[kind](below(), below())
    if kind == "of_count":
        return PREDICATES[rng.integers(len(PREDICATES))].of(count())
    factors = rng.choice([-3, -2, -1, 1, 2, 3], size=rng.integers(1, 4))
    constant = int(rng.integers(-3, 4))
    return at_least_one([(int(factor), count()) for factor in factors], constant)


def _leaf(rng, symbols, usable):
    choice = rng.integers(8)
    if choice == 0:
        return syntax.Constant(bool(rng.integers(2)))
    if choice == 1 and "at_position" in usable:
        return PREDICATES[rng.integers(len(PREDICATES))]
    return syntax.Symbol(symbols[rng.integers(len(symbols))])


def naive_truth(formula, word):
    """The truth at every position 1..n of a word of symbols, by the definitions."""
    positions = range(1, len(word) + 1)

    def number(count, i):
        seen = [j for j in positions if (j <= i if count.side == "prefix" else j >= i)]
        return sum(holds(count.operand, j) for j in seen)

    def holds(phi, i):
        match phi:
            case syntax.Symbol(name):
                return word[i - 1] == name
            case syntax.Constant(value):
                return value
            case syntax.Prefixed("not", operand):
                return not holds(operand, i)
            case syntax.Joined("and", left, right):
                return holds(left, i) and holds(right, i)
            case syntax.Joined("or", left, right):
                return holds(left, i) or holds(right, i)
            case syntax.Prefixed("P", operand):
                return i >= 2 and holds(operand, i - 1)
            case syntax.Prefixed("N", operand):
                return i < len(word) and holds(operand, i + 1)
            case syntax.Joined("S", left, right):
                return any(
                    holds(right, j) and all(holds(left, k) for k in range(j + 1, i + 1))
                    for j in range(1, i + 1)
                )
            case syntax.Joined("U", left, right):
                return any(
                    holds(right, j) and all(holds(left, k) for k in range(i, j))
                    for j in range(i, len(word) + 1)
                )
            case syntax.Comparison(terms, constant):
                return sum(k * number(count, i) for k, count in terms) + constant >= 1
            case syntax.Predicate(modulus, residues, count):
                k = number(count, i) if count else i
                return k % modulus in residues
        raise AssertionError(phi)

    return [bool(holds(formula, i)) for i in positions]

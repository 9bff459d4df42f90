"""The evaluator against plain Python, and the library's programs against checkers."""

import re

import jax
import numpy as np
import pytest

from jax_models.languages.dyck import DyckPrefixes
from jax_models.programs.rasp import (
    PROGRAMS,
    check_program,
    dyck_program,
    evaluate_program,
    k_hop_program,
)
from jax_models.programs.rasp.syntax import (
    Constant,
    Lookup,
    Operation,
    Sum,
    Variable,
)
from tests.bounds.influence.expect import refused
from tests.jax_models.programs.definitions import all_strings, expected, hop_outputs

ALPHABET = "ab"
# Texts by kind. {kind} is a text of a kind at the same index, {kind@i} one at i, {kind@} one
# without an index; a kind in capitals is a name. Texts before the bar have no depth.
RULES = {
    "bool": "{BOOL} ~ {SYMBOL} = '{ab}' ~ {SYMBOL} = {SYMBOL} ~ {int} {compare} {int} | "
    "not ({bool}) ~ if ({bool}) then ({bool}) else ({bool}) ~ ({bool}) {join} ({bool})",
    "flat": "{BOOL} ~ {SYMBOL} = '{ab}' ~ {SYMBOL} = {SYMBOL} ~ {int} {compare} {int}",
    "int": "{number} ~ {INT} ~ {INT} ~ ({sign}{INT} {plus} {INT}) ~ ({INT} - {BOOL})",
    "small": "{number} ~ {SMALL} ~ ({sign}{SMALL} {plus} {SMALL}) ~ ({SMALL} - {BOOL})",
    "predicate": "true ~ {bool@j} ~ {int@i} = {INT@j} ~ {SYMBOL@j} = {SYMBOL@i} ~ "
    "({flat@i}) {join} ({flat@j}) ~ {INT@j} = {INT@i} and {flat@j} ~ "
    "not (({flat@i}) and ({flat@j})) or ({flat@i})",
    "look up": "{side}_j[{mask}, {predicate}]",
    "number": "-2 ~ -1 ~ 0 ~ 1 ~ 2",
    "compare": "= ~ != ~ < ~ <= ~ > ~ >=",
    "join": "and ~ or ~ =",
    "sign": " ~ - ~ 2 * ",
    "plus": "+ ~ -",
    "ab": "a ~ b",
    "side": "right ~ left",
    "mask": "true ~ j<=i ~ j<i ~ j>=i ~ j>i",
    "default": "{SYMBOL@} ~ '#' ~ 'a'",
}
DEFINITIONS = (
    ("bool", "{bool}"),
    ("bool", "{look up} ({flat@j}) : ({flat@})"),
    ("symbol", "{look up} ({SYMBOL@j}) : ({default})"),
    ("small", "if {bool} then {small} else {small}"),
    ("int", "if {bool} then {int} else {int}"),
    ("small", "{look up} ({small@j}) : ({small@})"),
    ("int", "{look up} ({int@j}) : ({int@})"),
    ("int", "psum[j<=i] (({bool}) - ({flat}))"),
    ("int", "psum[j<=i] ({small} - ({flat}))"),
    ("small", "({bool}) - ({bool})"),
)


def random_program(seed, definitions):
    """The text of a program whose result is its last definition."""
    draw = np.random.default_rng(seed)
    # Integers of a constant range may be summed, the others may not.
    names = {"bool": [], "small": [], "int": ["pos"], "symbol": ["in"]}

    def pick(options):
        return options[int(draw.integers(len(options)))]

    def write(template, index="", depth=2):
        def put(found):
            kind, at, other = found[1].partition("@")
            mark = other if at else index
            if kind.isupper():
                known = names[kind.lower()]
                if not known:
                    return {"BOOL": "true", "SMALL": "1"}[kind]
                name = pick(known)
                return f"{name}({mark})" if mark else name
            flat, _, deep = RULES[kind].partition(" | ")
            texts = flat.split(" ~ ") + (
                deep.split(" ~ ") if deep and depth > 0 else []
            )
            return write(pick(texts), mark, depth - 1)

        return re.sub(r"\{([^{}]*)\}", put, template)

    lines = []
    for number in range(definitions):
        kind, template = pick(DEFINITIONS)
        lines.append(f"x{number} = {write(template)}")
        for known in {kind, "int"} if kind == "small" else {kind}:
            names[known].append(f"x{number}")
    return "\n".join([*lines, f"return x{definitions - 1}"])


OPERATORS = {
    "not": lambda a: not a,
    "and": lambda *parts: all(parts),
    "or": lambda *parts: any(parts),
    "in": lambda a, *symbols: a in symbols,
    "=": lambda a, b: a == b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
SEES = {
    "none": lambda i, j: True,
    "future": lambda i, j: j <= i,
    "past": lambda i, j: j >= i,
    "strict_future": lambda i, j: j < i,
    "strict_past": lambda i, j: j > i,
}


def run_plainly(checked, tokens):
    """What the program returns on one string, as a list."""
    word = [checked.alphabet[token] for token in tokens]
    length = len(word)
    vectors = {"in": word, "pos": list(range(1, length + 1))}
    for name, expression in checked.definitions.items():
        vectors[name] = [at(expression, vectors, i, None) for i in range(length)]
    return vectors[checked.result.name]


def at(node, vectors, i, j):
    """The value of an expression at i, in a lookup at the pair i, j."""

    def of(part):
        return at(part, vectors, i, j)

    match node:
        case Variable():
            return vectors[node.name][j if node.index == "j" else i]
        case Constant():
            return node.value
        case Sum():
            return sum(factor * int(of(term)) for factor, term in node.terms)
        case Operation(operator="psum", operands=(operand,)):
            return sum(int(at(operand, vectors, k, None)) for k in range(i + 1))
        case Operation(operator="if", operands=(condition, first, second)):
            return of(first) if of(condition) else of(second)
        case Operation():
            return OPERATORS[node.operator](*map(of, node.operands))
        case Lookup():
            allowed = [
                k
                for k in range(len(vectors["in"]))
                if SEES[node.mask](i, k) and at(node.predicate, vectors, i, k)
            ]
            if not allowed:
                return of(node.default)
            k = max(allowed) if node.side == "right" else min(allowed)
            return at(node.value, vectors, i, k)
    raise AssertionError(node)


def disagreements(program, strings):
    """How many strings the evaluator and plain Python read differently."""
    ours = evaluate_program(program, strings).tolist()
    return sum(
        one != run_plainly(program, string)
        for one, string in zip(ours, strings, strict=True)
    )


@pytest.mark.parametrize("seed", range(0, 100, 4))
def test_random_programs_mean_what_plain_python_says(seed):
    program = check_program(random_program(seed, 3 + seed % 3), ALPHABET)
    for length in (1, 2, 4):
        assert not disagreements(program, all_strings(2, length))


def test_plain_python_catches_a_lookup_of_the_wrong_side_mask_or_default():
    text = "x = right_j[j<i, in(j) = 'a'] pos(j) : 0\nreturn x"
    strings = all_strings(2, 4)
    wanted = [run_plainly(check_program(text, ALPHABET), one) for one in strings]
    for old, new in (("right", "left"), ("j<i", "j<=i"), (": 0", ": 1")):
        planted = check_program(text.replace(old, new), ALPHABET)
        assert evaluate_program(planted, strings).tolist() != wanted


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_of_the_library_computes_its_task(name):
    text, alphabet = PROGRAMS[name]
    longest = {2: 8, 3: 6, 4: 6, 5: 5, 6: 4}[len(alphabet)]
    program = check_program(text, alphabet)
    strings = all_strings(len(alphabet), longest)
    answers = evaluate_program(program, strings)
    # Each position answers for the prefix that ends there.
    np.testing.assert_array_equal(answers, expected(name, alphabet, strings))
    assert len(np.unique(answers)) > 1


@pytest.mark.slow
@pytest.mark.parametrize("num_types", [2, 3])
def test_the_dyck_programs_are_right_on_long_random_strings(num_types):
    """Prefixes of words, half of them with one symbol replaced, of length 60."""
    alphabet = PROGRAMS[f"dyck{num_types}"][1]
    draw = np.random.default_rng(num_types)
    strings = np.array(
        DyckPrefixes(num_types).sample(jax.random.key(num_types), 60, 500)
    )
    broken = np.arange(0, 500, 2)
    strings[broken, draw.integers(0, 60, 250)] = draw.integers(0, 2 * num_types, 250)
    program = check_program(dyck_program(num_types), alphabet)
    answers = evaluate_program(program, strings)
    np.testing.assert_array_equal(
        answers, expected(f"dyck{num_types}", alphabet, strings)
    )
    assert answers.any()


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_k_hop_follows_the_chain(hops):
    program = check_program(k_hop_program(hops), "abc")
    draw = np.random.default_rng(hops)
    for length in (1, 7, 40):
        strings = draw.integers(0, 3, (4, length))
        wanted = np.array([*"abc#"])[hop_outputs(strings, hops)]
        np.testing.assert_array_equal(evaluate_program(program, strings), wanted)


LARGE = check_program("x = 461168601842738790 * pos\nreturn x", ALPHABET)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: evaluate_program(LARGE, [0, 2]), "the alphabet has the ids 0 to 1"),
        (lambda: evaluate_program(LARGE, []), "n >= 1"),
        (lambda: evaluate_program(LARGE, [0.5]), "integers"),
        # An integer of more than 64 bits.
        (lambda: evaluate_program(LARGE, [0] * 11), "line 1, column 5: at n = 11"),
        (lambda: dyck_program(5), "got 5"),
        (lambda: k_hop_program(0), "got 0"),
    ],
)
def test_what_has_no_value_is_refused(call, says):
    with refused(says):
        call()


def test_an_integer_of_64_bits_is_exact():
    assert evaluate_program(LARGE, [0] * 10)[-1] == 4611686018427387900

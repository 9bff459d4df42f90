"""Random programs over the alphabet ab, of every construct, well typed."""

import re

import numpy as np

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


def random_program(seed, definitions=4):
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

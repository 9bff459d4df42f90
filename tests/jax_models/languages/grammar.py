"""Exact oracle of the sources: words grown symbol by symbol, in rational numbers."""

import itertools
import math
from fractions import Fraction


def parity_follows(p):
    """Returns what follows a bit string: after an even count of ones it may end."""

    def follows(string):
        if sum(string) % 2:
            return (Fraction(1, 2), Fraction(1, 2), Fraction(0))
        return ((1 - p) / 2, (1 - p) / 2, p)

    return follows


def dyck_follows(p, k=2, depth=math.inf):
    """Returns what follows a bracket string, read with a stack."""

    def follows(string):
        stack = []
        for symbol in string:
            if symbol % 2 == 0:
                stack.append(symbol)
            else:
                assert stack.pop() == symbol - 1
        up = p if len(stack) < depth else Fraction(0)
        law = [up / k, Fraction(0)] * k + [Fraction(0)]
        law[stack[-1] + 1 if stack else -1] = 1 - up
        return tuple(law)

    return follows


def prefix_law(follows, length):
    """Returns every prefix of a length with its probability, not yet conditional."""
    law = {(): Fraction(1)}
    for _ in range(length):
        law = {
            (*string, symbol): weight * chance
            for string, weight in law.items()
            for symbol, chance in enumerate(follows(string)[:-1])
            if chance
        }
    return law


def cross_entropy(follows, length, predict):
    """Returns the expected loss of a prediction of what follows a prefix, in nats."""
    law = prefix_law(follows, length)
    total = sum(law.values())
    return sum(
        float(weight / total * chance) * -math.log(guess)
        for string, weight in law.items()
        for chance, guess in zip(follows(string), predict(string), strict=True)
        if chance
    )


def best_given(follows, length, seen):
    """Returns the least expected loss of predictions that see only `seen(prefix)`."""
    law, tables = prefix_law(follows, length), {}
    for string, weight in law.items():
        table = tables.setdefault(seen(string), itertools.repeat(Fraction(0)))
        tables[seen(string)] = [
            a + weight * b for a, b in zip(table, follows(string), strict=False)
        ]
    chances = {key: [float(x / sum(row)) for x in row] for key, row in tables.items()}
    return cross_entropy(follows, length, lambda string: chances[seen(string)])

"""The PARITY source has the probabilities of its grammar."""

import itertools
import math

import jax
import numpy as np
import pytest

import jax_models as jm


def prefix_probability(string, p):
    """Probability that a word of the grammar begins with the string."""
    probability, even = 1.0, True
    for symbol in string:
        probability *= (1 - p) / 2 if even else 1 / 2
        even = even != (symbol == 1)
    return probability


def conditional(n, p):
    strings = list(itertools.product((0, 1), repeat=n))
    weights = np.array([prefix_probability(x, p) for x in strings])
    return strings, weights / weights.sum()


@pytest.mark.parametrize("p", [0.3, 0.8])
def test_samples_have_the_probabilities_of_prefixes(p):
    n, count = 4, 40000
    strings, expected = conditional(n, p)
    drawn = np.asarray(jm.ParitySource(p).sample(jax.random.key(0), n, count))
    codes = drawn @ (2 ** np.arange(n)[::-1])
    seen = np.bincount(codes, minlength=2**n)
    assert [codes_of(x) for x in strings] == list(range(2**n))
    chi2 = ((seen - count * expected) ** 2 / (count * expected)).sum()
    # 15 degrees of freedom: mean 15, deviation 5.5.
    assert chi2 < 15 + 4 * math.sqrt(30)
    # Fair bits, which ignore p, would be caught.
    fair = count / 2**n
    assert ((seen - fair) ** 2 / fair).sum() > 200


def codes_of(string):
    return sum(bit << k for k, bit in enumerate(reversed(string)))


def test_the_next_symbol_follows_the_count_of_ones():
    found = np.asarray(jm.ParitySource(0.3).next_symbol(np.array([[1, 1, 0, 1]])))[0]
    even, odd = [0.35, 0.35, 0.3], [0.5, 0.5, 0.0]
    np.testing.assert_allclose(found, [odd, even, even, odd], rtol=1e-6)


@pytest.mark.parametrize("p", [0.05, 0.5, 0.9])
def test_the_levels_are_those_of_all_prefixes(p):
    source, n = jm.ParitySource(p), 5
    strings, weights = conditional(n, p)
    following = np.asarray(source.next_symbol(np.array(strings)))[:, -1]
    logs = np.log(np.where(following > 0, following, 1))
    entropy = -(weights[:, None] * following * logs).sum()
    assert source.optimal_cross_entropy == pytest.approx(entropy, rel=1e-6)
    mean = weights @ following
    assert source.levels(n).unigram == pytest.approx(
        -(mean * np.log(mean)).sum(), rel=1e-6
    )


@pytest.mark.parametrize("p", [0, 1, -0.5])
def test_an_end_probability_is_inside_0_and_1(p):
    with pytest.raises(jm.InputError, match="end probability"):
        jm.ParitySource(p)

"""Upper bounds on norms: never below the true norm, close to it, without trust."""

import math

import mpmath
import numpy as np
import pytest

from bounds.numbers import spectral
from bounds.numbers.interval import upper
from bounds.numbers.spectral import (
    Enclosure,
    frobenius_upper,
    largest_row_norm,
    norm_upper,
    residual,
)

RNG = np.random.default_rng(0)


def true_norm(matrix):
    """The largest singular value with 60 digits, of an (m, n) array or nested lists."""
    with mpmath.workdps(60):
        exact = mpmath.matrix(np.asarray(matrix).tolist())
        return max(mpmath.svd(exact, compute_uv=False))


def hilbert(size):
    j = np.arange(size)
    return 1.0 / (1 + j[:, None] + j)


def graded(size):
    """Singular values from 1 down to 1e-15."""
    q, _ = np.linalg.qr(RNG.normal(size=(size, size)))
    p, _ = np.linalg.qr(RNG.normal(size=(size, size)))
    return (q * np.logspace(0, -15, size)) @ p


MATRICES = {
    "number": np.array([[-3.0]]),
    "column": RNG.normal(size=(5, 1)),
    "row": RNG.normal(size=(1, 5)),
    "identity": np.eye(4),
    "equal": np.ones((4, 3)),
    "wide": RNG.normal(size=(3, 9)),
    "tall": RNG.normal(size=(9, 3)),
    "orthogonal": np.linalg.qr(RNG.normal(size=(8, 8)))[0],
    "rank one": np.outer(RNG.normal(size=6), RNG.normal(size=7)),
    "hilbert": hilbert(8),
    "graded": graded(8),
    "zero": np.zeros((3, 4)),
    "float32": RNG.normal(size=(4, 4)).astype(np.float32),
}


@pytest.fixture(autouse=True)
def forget():
    """Every test forms its norms itself."""
    spectral._NORMS.clear()


@pytest.mark.parametrize("scale", [1.0, 2.0**-1060, 1e-200, 1e200])
@pytest.mark.parametrize("name", MATRICES)
def test_it_is_above_the_true_norm_and_close(name, scale):
    matrix = MATRICES[name].astype(np.float64) * scale
    bound, exact = norm_upper(matrix), true_norm(matrix)
    assert mpmath.mpf(bound) >= exact
    # In the subnormal range the next float is a whole 2^-1074 away.
    assert mpmath.mpf(bound) <= exact * (1 + mpmath.mpf(1e-13)) + mpmath.mpf(2) ** -1073


def test_large_matrices_cost_little_precision():
    size = 300
    matrix = np.random.default_rng(size).normal(size=(size, size))
    approximate = np.linalg.norm(matrix, 2)
    assert approximate <= norm_upper(matrix) <= approximate * (1 + size**2 * 2.0**-51)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda u, s, vt: (u, s / 2, vt),
        lambda u, s, vt: (u / 2, s, vt),
        lambda u, s, vt: (u, s, vt[::-1]),
        lambda u, s, vt: (u, s * 0, vt),
        lambda u, s, vt: (u[:, :1], s[:1] * 0.9, vt[:1]),
        # The product is right, and so are the bases but for their sizes.
        lambda u, s, vt: (2 * u, s / 2, vt),
        lambda u, s, vt: (u, s / 2, 2 * vt),
    ],
)
def test_a_wrong_decomposition_cannot_make_it_wrong(wrong, monkeypatch):
    """What the algorithm returned is checked, not believed."""
    matrix = MATRICES["wide"]
    exact = true_norm(matrix)
    true = np.linalg.svd
    monkeypatch.setattr(
        np.linalg, "svd", lambda a, full_matrices: wrong(*true(a, full_matrices=False))
    )
    assert mpmath.mpf(norm_upper(matrix)) >= exact


@pytest.mark.parametrize("seed", range(5))
def test_a_product_that_rounds_to_the_matrix_still_leaves_a_residual(seed):
    """The computed residual is zero and the true one is not."""
    rng = np.random.default_rng(seed)
    u, s, vt = rng.normal(size=(4, 3)) / 4, rng.uniform(size=3), rng.normal(size=(3, 5))
    matrix = (u * s) @ vt
    with mpmath.workdps(60):
        product = exactly(u) * mpmath.diag(s.tolist()) * exactly(vt)
        hidden = mpmath.mnorm(exactly(matrix) - product, "f")
    assert hidden > 0
    assert hidden <= upper(residual(matrix, u, s, vt)) < 1e-14


def test_what_is_remembered_is_of_one_shape_and_of_these_numbers():
    matrix = np.arange(12.0).reshape(3, 4)
    for other in (
        matrix,
        matrix.reshape(4, 3),
        matrix.reshape(2, 6),
        matrix + 1,
        -matrix,
    ):
        for _ in range(2):
            bound, exact = mpmath.mpf(norm_upper(other)), true_norm(other)
            assert exact <= bound <= exact * (1 + 1e-13)


def test_a_decomposition_that_fails_leaves_the_frobenius_norm(monkeypatch):
    def fail(a, full_matrices):
        raise np.linalg.LinAlgError

    monkeypatch.setattr(np.linalg, "svd", fail)
    assert norm_upper(np.eye(4)) == pytest.approx(2.0, rel=1e-14)


def test_without_the_radius_a_rounded_norm_would_be_too_small():
    """The oracle sees single roundings: the plain value is below for some of them."""
    plain = [np.linalg.norm(m.astype(float), 2) for m in MATRICES.values()]
    exact = [true_norm(m.astype(float)) for m in MATRICES.values()]
    assert any(mpmath.mpf(p) < e for p, e in zip(plain, exact, strict=True))


def test_norms_of_vectors_and_rows():
    rows = RNG.normal(size=(20, 5)) * 1e180
    with mpmath.workdps(60):
        exact = [mpmath.norm(mpmath.matrix(row.tolist())) for row in rows]
        whole = mpmath.norm(mpmath.matrix(rows.ravel().tolist()))
    assert max(exact) <= largest_row_norm(rows) <= max(exact) * (1 + 1e-14)
    assert whole <= frobenius_upper(rows) <= whole * (1 + 1e-13)
    assert largest_row_norm(np.zeros((2, 2))) == frobenius_upper(np.zeros(3)) == 0


def test_what_is_not_finite_has_no_finite_bound():
    for bound in (norm_upper, frobenius_upper, largest_row_norm):
        assert bound(np.array([[1.0, math.inf]])) == math.inf
        assert bound(np.array([[1.0, math.nan]])) == math.inf
    assert norm_upper(np.full((2, 2), 1.7e308)) == math.inf


def exactly(matrix):
    with mpmath.workdps(60):
        return mpmath.matrix(matrix.tolist())


def distance(enclosure, exact):
    """The Frobenius distance of the middle from the true matrix."""
    with mpmath.workdps(60):
        return mpmath.mnorm(exactly(enclosure.middle) - exact, "f")


@pytest.mark.parametrize("seed", range(5))
def test_an_enclosure_holds_the_true_product_and_sum(seed):
    rng = np.random.default_rng(seed)
    a, b, c = rng.normal(size=(3, 4)), rng.normal(size=(4, 5)), rng.normal(size=(5, 2))
    factors = rng.uniform(0.1, 10, size=3)
    found = (Enclosure(a) @ Enclosure(b)).scaled(factors) @ Enclosure(c)
    found += Enclosure(a[:, :2])
    with mpmath.workdps(60):
        scaled = mpmath.diag(factors.tolist()) * exactly(a) * exactly(b)
        exact = scaled * exactly(c) + exactly(a[:, :2])
    assert 0 < distance(found, exact) <= found.radius < 1e-11
    assert mpmath.mpf(found.norm_upper()) >= true_norm(exact.tolist())
    assert found.transposed.radius == found.radius


def test_a_product_that_underflows_is_held_too():
    tiny = np.full((3, 3), 1e-170)
    found = Enclosure(tiny) @ Enclosure(tiny)
    assert not found.middle.any()
    with mpmath.workdps(60):
        assert found.norm_upper() >= 3 * mpmath.mpf(1e-170) ** 2
    assert (Enclosure(tiny) @ Enclosure(np.zeros((3, 3)))).norm_upper() == 0


def test_a_product_that_overflows_has_no_finite_norm():
    huge = np.full((2, 2), 1e300)
    assert (Enclosure(huge) @ Enclosure(huge)).norm_upper() == math.inf


def test_radii_of_factors_are_carried():
    """With both middles off by their whole radius, in the same direction."""
    one = Enclosure(np.array([[1.0]]), 0.25)
    assert (one @ one).norm_upper() >= 1.25**2
    assert (one + one).norm_upper() >= 2.5
    assert one.scaled(np.array([4.0])).norm_upper() >= 5

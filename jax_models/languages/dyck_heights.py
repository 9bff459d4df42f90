"""The height of a random prefix of DYCK: a random walk that must not fall below 0.

A word goes up (an opening bracket) with probability p, down or to its end with q = 1 - p:
its height is a simple random walk killed by a step down from 0. There are
N(n, h) = (h+1)/(n+1) C(n+1, (n-h)/2) paths from 0 to h that stay >= 0, all with the same
probability, so that given at least n symbols P(H_n = h) ~ N(n, h) (p/q)^{h/2} for
h = n mod 2, and P(step n goes down | H_n = h) = (h+2)(n-h) / (2n(h+1)), whatever p is.

Heights are 0, 1, …, n: arrays [n + 1].

DYCK-k as a source: the grammar S -> (S)S, p/k for each type, or nothing, 1 - p.

Expanding the leftmost S says what follows a prefix: an opening bracket of each type with
probability p/k, else the bracket that closes the innermost open one, or END if none is.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int, PRNGKeyArray

from jax_models.languages.bracket_source import BracketSource
from jax_models.languages.dyck import brackets_of
from jax_models.languages.source import check_probability
from jax_models.run.device_memory import require_memory


@dataclasses.dataclass(frozen=True)
class DyckSource(BracketSource):
    """Prefixes of words over k bracket types.

    Attributes:
        up_probability: p, of an opening bracket. From p = 1/2 on words have an infinite
            mean length, beyond it some are infinite; prefixes are as well defined.
        num_types: k.

    Raises:
        InputError: if p is not inside (0, 1), or k is not 1 to 4.
    """

    up_probability: float = 0.25
    num_types: int = 2

    def __post_init__(self) -> None:
        """Checks p and k."""
        check_probability("bracket probability p", self.up_probability)
        brackets_of(self.num_types)

    @property
    def name(self) -> str:
        """The name with the number of types: "dyck2" for two."""
        return f"dyck{self.num_types}"

    @property
    def max_height(self) -> None:
        """There is none."""
        return

    def up_probabilities(self, heights: np.ndarray) -> np.ndarray:
        """Returns p at every height."""
        return np.full(np.shape(heights), self.up_probability)

    def step_law(self, length: int) -> np.ndarray:
        """Returns P(step n goes up or down, H_n = h) [2, n + 1], in closed form."""
        return step_law(length, self.up_probability)

    def log_survival(self, length: int) -> float:
        """Returns ln P(at least n symbols), from the numbers of paths."""
        return log_survival(length, self.up_probability)

    def draw_steps(
        self, key: PRNGKeyArray, length: int, count: int
    ) -> Int[Array, "inputs tokens"]:
        """Draws H_n from its law, then the steps from the last to the first.

        P(step m goes down | H_m = h) = (h+2)(m-h) / (2m(h+1)).
        """
        last_key, step_key = jax.random.split(key)
        law = height_law(length, self.up_probability)[length % 2 :: 2]
        ladder = np.cumsum(law)
        u = jax.random.uniform(last_key, (count,))
        rank = jnp.searchsorted(jnp.asarray(ladder / ladder[-1]), u, side="right")
        last = 2 * rank.astype(jnp.int32) + length % 2
        chance = jax.random.uniform(step_key, (length, count))
        times = jnp.arange(1, length + 1, dtype=chance.dtype)

        def back(height: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
            m, u = now
            h = height.astype(m.dtype)
            falls = (h + 2) / (h + 1) * ((m - h) / (2 * m))
            step = jnp.where(u < falls, -1, 1).astype(jnp.int32)
            return height - step, step

        _, steps = jax.lax.scan(back, last, (times, chance), reverse=True)
        return steps.T


def height_law(length: int, up_probability: float) -> Float[np.ndarray, "heights"]:
    """Returns P(H_n = h | at least n symbols).

    Summed outwards from the mode by the ratios of neighbours, so that the digits of
    what matters do not depend on n.
    """
    heights, logs, _ = _relative(length, up_probability)
    law = np.zeros(length + 1)
    law[heights] = np.exp(logs)
    return law / law.sum()


def log_survival(length: int, up_probability: float) -> float:
    """Returns ln P(at least n symbols) = ln Σ_h N(n, h) p^{(n+h)/2} q^{(n-h)/2}."""
    _, logs, mode = _relative(length, up_probability)
    down, up = (length - mode) // 2, (length + mode) // 2
    paths = math.log((mode + 1) / (length + 1)) + math.lgamma(length + 2)
    paths -= math.lgamma(down + 1) + math.lgamma(up + 2)
    one = paths + up * math.log(up_probability) + down * math.log1p(-up_probability)
    return one + math.log(np.exp(logs).sum())


def step_law(length: int, up_probability: float) -> Float[np.ndarray, "2 heights"]:
    """Returns P(step n goes up or down, H_n = h | at least n symbols)."""
    n, h = length, np.arange(length + 1.0)
    law = height_law(length, up_probability) / (2 * n * (h + 1))
    return np.stack([law * h * (n + h + 2), law * (h + 2) * (n - h)])


def closing_above_ground(length: int, up_probability: float) -> float:
    """Returns P_0(n) = P(x_n closes, H_n > 0 | at least n symbols).

    Σ_{h>=1} P(H_n = h) (h+2)(n-h) / (2n(h+1)): something is still open after a closing
    bracket, so that which bracket closes next cannot be read off x_n.
    """
    return float(step_law(length, up_probability)[1, 1:].sum())


def limiting_closing_above_ground(up_probability: float) -> tuple[float, float]:
    """Returns the limits of P_0(n) over even and over odd n.

    With r = p/q: (2r - r²)/(1 + r) and (3 - r)/4 for p < 1/2, 1/2 at p = 1/2, q beyond.
    """
    p, q = up_probability, 1 - up_probability
    if p < q:
        r = p / q
        return (2 * r - r * r) / (1 + r), (3 - r) / 4
    return q, q


def limiting_height_law(
    # from 1/2 on the height grows without limit, and all is 0
    up_probability: float,
    heights: int,
) -> Float[np.ndarray, "2 heights"]:
    """Returns the quasi-stationary law of the height, over even and then over odd n.

    ν(h) ~ (h+1) (p/q)^{h/2} on the heights of one parity: with r = p/q and even h,
    (1 - r)²/(1 + r) (h+1) r^{h/2}, with odd h, (1 - r)²/2 (h+1) r^{(h-1)/2}. It is what a
    walk that has survived looks like, not the stationary law of one that starts again.
    """
    p, q = up_probability, 1 - up_probability
    law, h = np.zeros((2, heights)), np.arange(heights)
    if p < q:
        r = p / q
        for odd, mass in enumerate((1 + r, 2.0)):
            ours = h % 2 == odd
            law[odd, ours] = (1 - r) ** 2 / mass * (h + 1)[ours] * r ** (h[ours] // 2)
    return law


def _relative(length: int, up_probability: float) -> tuple[np.ndarray, np.ndarray, int]:
    """The heights of the right parity, ln P(h)/P(mode) of each, and the mode."""
    require_memory(f"a law of {length} heights", 64 * length)
    n, p = length, up_probability
    heights = np.arange(n % 2, n + 1, 2)
    h = heights[:-1].astype(float)
    # ln P(h + 2)/P(h), which decreases in h.
    rises = np.log((h + 3) / (h + 1)) + np.log((n - h) / (n + h + 4))
    rises += math.log(p) - math.log1p(-p)
    mode = int((rises > 0).sum())
    above = np.cumsum(rises[mode:])
    below = -np.cumsum(rises[:mode][::-1])[::-1]
    logs = np.concatenate([below, [0.0], above])
    return heights, logs, int(heights[mode])

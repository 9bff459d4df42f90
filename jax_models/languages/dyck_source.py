"""DYCK-k as a source: bracketed words whose height is a walk that must not fall below 0.

The height of a prefix is its number of open brackets. The next symbol at height h is an
opening bracket with probability u_h, each of the k types alike, and with 1 - u_h the bracket
that closes the innermost open one, or END at height 0. The types of brackets that are open
are independent and uniform, whatever stands inside them, so a law of heights and last steps
gives everything else. At a depth of at most D, heights are a finite automaton of D + 1
states. H_n is the height after n symbols, 0 to n: its laws are arrays [n + 1].
"""

import abc
import dataclasses
import math
from typing import ClassVar, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from jax_models.arguments import expect_integer
from jax_models.languages.automaton import AutomatonSource
from jax_models.languages.base import (
    Following,
    Prefixes,
    Source,
    Strings,
    binary_entropy,
    check_probability,
)
from jax_models.languages.dyck import brackets_of
from jax_models.run.device_memory import require_memory

# Heights of strings, and the types of their brackets by height, or the moves.
Walks: TypeAlias = tuple[Int[Array, "inputs"], Int[Array, "inputs ..."]]
# Open brackets of strings: number, types, validity.
Integers: TypeAlias = Int[Array, "..."]
OpenBrackets: TypeAlias = tuple[Integers, Integers, Bool[Array, "..."]]
# P(step n goes up or down, H_n = h | at least n symbols).
StepLaw: TypeAlias = Float[np.ndarray, "2 heights"]


@dataclasses.dataclass(frozen=True)
class BracketSource(Source):
    """Source of words over k bracket types, ended where the walk of heights falls below 0."""

    up_probability: float = 0.25
    num_types: int = 2
    # The largest height, None where there is none.
    max_height: ClassVar[int | None] = None

    def __post_init__(self) -> None:
        """Checks the probability p of an opening bracket and the number of types k."""
        check_probability("bracket probability p", self.up_probability)
        symbols = brackets_of(self.num_types)
        vars(self).update(name=f"dyck{self.num_types}", symbols=symbols)

    def up_probabilities(
        self, heights: Int[np.ndarray, "..."]
    ) -> Float[np.ndarray, "..."]:
        """Returns u_h, p below the largest height h and 0 there, for each height h."""
        highest = math.inf if self.max_height is None else self.max_height
        return np.where(heights < highest, self.up_probability, 0.0)

    @abc.abstractmethod
    def step_law(self, length: int) -> StepLaw:
        """Returns P(step n goes up or down, H_n = h | at least n symbols)."""

    @abc.abstractmethod
    def draw_steps(self, key: PRNGKeyArray, length: int, count: int) -> Strings:
        """Draws walks of `length` steps, +1 and -1, that stay at 0 or above, int32."""

    @property
    def first_symbol(self) -> tuple[float, ...]:
        """Distribution of the first symbol: an opening bracket, or END, which is last."""
        up = float(self.up_probabilities(np.zeros((), int)))
        return (*(up / self.num_types, 0.0) * self.num_types, 1 - up)

    def draw(self, key: PRNGKeyArray, length: int, count: int) -> Strings:
        """Draws the walk of heights, then a type for each pair of brackets."""
        step_key, type_key = jax.random.split(key)
        steps = self.draw_steps(step_key, length, count)
        kinds = jax.random.randint(
            type_key, (length, count), 0, self.num_types, jnp.int32
        )
        row = jnp.arange(count, dtype=jnp.int32)

        # A stack of types is, for batches, several times faster than `dyck.type_brackets`.
        def step(state: Walks, now: Walks) -> tuple[Walks, Int[Array, "inputs"]]:
            (height, types), (move, kind) = state, now
            level = jnp.maximum(height, height + move)  # the unit of height crossed
            kind = jnp.where(move > 0, kind, types[row, level])
            types = types.at[row, level].set(kind, unique_indices=True)
            return (height + move, types), 2 * kind + (1 - move) // 2

        levels = min(length, self.max_height or length) + 1
        first = jnp.zeros(count, jnp.int32), jnp.zeros((count, levels), jnp.int32)
        return jax.lax.scan(step, first, (steps.T, kinds))[1].T

    def next_symbol(self, tokens: Prefixes) -> Following:
        """Returns the distribution of the symbol after each prefix."""
        k, length = self.num_types, tokens.shape[-1]
        reached = min(length, self.max_height or length)
        heights, tops, possible = open_brackets(tokens, k, reached)
        ups = jnp.asarray(self.up_probabilities(np.arange(reached + 1)))
        up = jnp.where(possible, ups[heights], 0.0)[..., None]
        down = jnp.where(possible, 1 - ups[heights], 0.0)[..., None]
        brackets = jnp.arange(2 * k, dtype=tokens.dtype)
        closes = (heights > 0)[..., None] & (brackets == 2 * tops[..., None] + 1)
        inside = jnp.where(brackets % 2 == 0, up / k, jnp.where(closes, down, 0.0))
        end = jnp.where((heights == 0)[..., None], down, 0.0)
        return jnp.concatenate([inside, end], axis=-1)

    def joint(self, length: int) -> Float[np.ndarray, "symbols classes"]:
        """Returns the joint law of a prefix's last symbol and the next symbol."""
        k, law = self.num_types, self.step_law(length)
        up = self.up_probabilities(np.arange(law.shape[1]))
        table = np.zeros((2 * k, 2 * k + 1))
        # After an opening bracket of type t only t can be closed; after a closing one the
        # bracket that is open is of any type, whatever has just been closed.
        opens, closes = law / k
        table[0::2, 0:-1:2], table[1::2, 0:-1:2] = opens @ up / k, closes @ up / k
        table[1::2, 1:-1:2] = closes[1:] @ (1 - up[1:]) / k
        table[1::2, -1] = closes[0] * (1 - up[0])
        kinds = np.arange(k)
        table[2 * kinds, 2 * kinds + 1] = opens @ (1 - up)
        return table

    def optimal_entropy(self, length: int) -> float:
        """Returns Σ_h P(H_n = h) [B(u_h) + u_h ln k] nats, B the binary entropy."""
        law = self.step_law(length).sum(axis=0)
        up = self.up_probabilities(np.arange(law.size))
        # Which bracket closes is known from the prefix: only the type of an opening is open.
        each = [binary_entropy(u) + u * math.log(self.num_types) for u in np.unique(up)]
        return float(law @ np.array(each)[np.searchsorted(np.unique(up), up)])

    def prefixes(self, length: int) -> Int[np.ndarray, "prefixes tokens"]:
        """Returns every prefix of a length, each once, for k ** length below 2 ** 63."""
        k, deepest = self.num_types, self.max_height or length
        strings, heights = np.zeros((1, 0), np.int32), np.zeros(1, int)
        open_types = np.zeros(1, np.int64)  # a number in base k, the innermost last
        for _ in range(length):
            up, down = np.flatnonzero(heights < deepest), np.flatnonzero(heights)
            kind = np.tile(np.arange(k), up.size)
            at = np.concatenate([np.repeat(up, k), down])
            top = open_types[down] % k
            symbol = np.concatenate([2 * kind, 2 * top + 1]).astype(np.int32)
            open_types = np.concatenate(
                [open_types[at[: kind.size]] * k + kind, open_types[down] // k]
            )
            strings = np.column_stack([strings[at], symbol])
            heights = heights[at] + np.where(symbol % 2, -1, 1)
        return strings


def open_brackets(tokens: Prefixes, num_types: int, reached: int) -> OpenBrackets:
    """Returns the open brackets after each symbol: number, innermost type and validity.

    Not valid are strings that are no prefix of a word of at most `reached` open brackets.
    """

    def step(
        state: OpenBrackets, token: Int[Array, ""]
    ) -> tuple[OpenBrackets, OpenBrackets]:
        height, types, possible = state
        kind, opens = token // 2, token % 2 == 0
        # The type has no meaning where no bracket is open; validity stays True while the
        # string is a prefix of a word.
        fits = jnp.where(
            opens, height < reached, (height > 0) & (types[height] == kind)
        )
        possible &= fits & (token >= 0) & (token < 2 * num_types)
        # Clipped for strings that are no prefix: their heights index the stack too.
        height = jnp.where(opens, height + 1, height - 1).clip(0, reached)
        types = types.at[height].set(jnp.where(opens, kind, types[height]))
        return (height, types, possible), (height, types[height], possible)

    def one(string: Int[Array, "tokens"]) -> OpenBrackets:
        types = jnp.zeros(reached + 1, string.dtype)
        first = jnp.zeros((), jnp.int32), types, jnp.asarray(True)
        return jax.lax.scan(step, first, string)[1]

    found = jax.vmap(one)(tokens.reshape(-1, tokens.shape[-1]))
    heights, tops, possible = (part.reshape(tokens.shape) for part in found)
    return heights, tops, possible


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

    def step_law(self, length: int) -> StepLaw:
        """Returns P(step n up or down, H_n = h | at least n symbols) in closed form."""
        n, h = length, np.arange(length + 1.0)
        # Both shares add to 1: h (n + h + 2) + (h + 2)(n - h) = 2n (h + 1).
        law = height_law(n, self.up_probability) / (2 * n * (h + 1))
        return np.stack([law * h * (n + h + 2), law * (h + 2) * (n - h)])

    def log_survival(self, length: int) -> float:
        """Returns ln P(at least n symbols), from the numbers of paths."""
        p = self.up_probability
        _, logs, mode = _relative(length, p)
        # ln Σ_h N(n, h) p^{(n+h)/2} q^{(n-h)/2}, N(n, h) paths from 0 to h: the mode's term,
        # and the sum over its size.
        down, up = (length - mode) // 2, (length + mode) // 2
        paths = math.log((mode + 1) / (length + 1)) + math.lgamma(length + 2)
        paths -= math.lgamma(down + 1) + math.lgamma(up + 2)
        one = paths + up * math.log(p) + down * math.log1p(-p)
        return one + math.log(np.exp(logs).sum())

    def draw_steps(self, key: PRNGKeyArray, length: int, count: int) -> Strings:
        """Draws H_n from its law, then the steps from the last to the first."""
        last_key, step_key = jax.random.split(key)
        law = height_law(length, self.up_probability)[length % 2 :: 2]
        ladder = np.cumsum(law)
        u = jax.random.uniform(last_key, (count,))
        # Heights have the parity of n: rank r is height 2 r + n mod 2.
        rank = jnp.searchsorted(jnp.asarray(ladder / ladder[-1]), u, side="right")
        last = 2 * rank.astype(jnp.int32) + length % 2
        chance = jax.random.uniform(step_key, (length, count))
        times = jnp.arange(1, length + 1, dtype=chance.dtype)

        def back(
            height: Int[Array, "inputs"],
            now: tuple[Float[Array, ""], Float[Array, "inputs"]],
        ) -> Walks:
            m, u = now
            h = height.astype(m.dtype)
            # P(step m goes down | H_m = h) = (h+2)(m-h) / (2m(h+1)), whatever p is.
            falls = (h + 2) / (h + 1) * ((m - h) / (2 * m))
            step = jnp.where(u < falls, -1, 1).astype(jnp.int32)
            return height - step, step

        _, steps = jax.lax.scan(back, last, (times, chance), reverse=True)
        return steps.T


@dataclasses.dataclass(frozen=True)
class BoundedDyckSource(BracketSource):
    """Prefixes of words over k bracket types and of bounded depth.

    Attributes:
        up_probability: p, of an opening bracket below the largest depth.
        num_types: k.
        depth: D, at least 1.

    Raises:
        InputError: if p is not inside (0, 1), k is not 1 to 4, or D is below 1.
    """

    depth: int = 4

    def __post_init__(self) -> None:
        """Checks the probability p, the number of types k and the depth D."""
        super().__post_init__()
        expect_integer("depth", self.depth, 1)
        name = f"{self.name}_depth{self.depth}"
        vars(self).update(name=name, max_height=self.depth)

    @property
    def heights(self) -> AutomatonSource:
        """Source of the steps of the height alone: 0 is a step up, 1 a step down."""
        deepest = self.depth
        ups = [float(u) for u in self.up_probabilities(np.arange(deepest + 1))]
        return AutomatonSource(
            tuple((min(h + 1, deepest), max(h - 1, 0)) for h in range(deepest + 1)),
            tuple((up, 1 - up if h else 0.0) for h, up in enumerate(ups)),
            (1 - ups[0], *[0.0] * deepest),
            label=f"heights of {self.name}",
        )

    def step_law(self, length: int) -> StepLaw:
        """Returns P(step n up or down, H_n = h | at least n symbols), O(n D^2)."""
        return self.heights.joint_states(length)

    def log_survival(self, length: int) -> float:
        """Returns ln P(at least n symbols), O(n D^2)."""
        return self.heights.log_survival(length)

    def draw_steps(self, key: PRNGKeyArray, length: int, count: int) -> Strings:
        """Draws walks forwards, each step given that the walk reaches `length` steps."""
        return 1 - 2 * self.heights.draw(key, length, count)


def height_law(length: int, up_probability: float) -> Float[np.ndarray, "heights"]:
    """Returns P(H_n = h | at least n symbols)."""
    heights, logs, _ = _relative(length, up_probability)
    law = np.zeros(length + 1)
    law[heights] = np.exp(logs)
    return law / law.sum()


def closing_above_ground(length: int, up_probability: float) -> float:
    """Returns P_0(n) = P(x_n closes, H_n > 0 | at least n symbols)."""
    # Something is still open after a closing bracket, so that which bracket closes next
    # cannot be read off x_n.
    return float(DyckSource(up_probability).step_law(length)[1, 1:].sum())


def limiting_closing_above_ground(up_probability: float) -> tuple[float, float]:
    """Returns the limits of `closing_above_ground` over even and over odd lengths n."""
    p, q = up_probability, 1 - up_probability
    # With r = p/q they are (2r - r²)/(1 + r) and (3 - r)/4; 1/2 at p = 1/2, and q beyond,
    # where the height grows without limit.
    if p < q:
        r = p / q
        return (2 * r - r * r) / (1 + r), (3 - r) / 4
    return q, q


def limiting_height_law(
    # from 1/2 on the height grows without limit, and all is 0
    up_probability: float,
    heights: int,
) -> Float[np.ndarray, "2 heights"]:
    """Returns limits of P(H_n = h | at least n symbols) over even, then over odd n."""
    p, q = up_probability, 1 - up_probability
    # ν(h) ~ (h+1) (p/q)^{h/2} on the heights of one parity. With r = p/q, for even h it is
    # (1 - r)²/(1 + r) (h+1) r^{h/2}, for odd h (1 - r)²/2 (h+1) r^{(h-1)/2}: the law of a
    # walk that has survived, not the stationary law of one that starts again.
    law, h = np.zeros((2, heights)), np.arange(heights)
    if p < q:
        r = p / q
        for odd, mass in enumerate((1 + r, 2.0)):
            ours = h % 2 == odd
            law[odd, ours] = (1 - r) ** 2 / mass * (h + 1)[ours] * r ** (h[ours] // 2)
    return law


def _relative(
    length: int, up_probability: float
) -> tuple[Int[np.ndarray, "heights"], Float[np.ndarray, "heights"], int]:
    """Possible heights H_n, ln P(H_n = h)/P(H_n = mode) of each, and the mode."""
    # There are N(n, h) = (h+1)/(n+1) C(n+1, (n-h)/2) paths from 0 to h that stay >= 0, all
    # with the same probability: given at least n symbols, P(H_n = h) ~ N(n, h) (p/q)^{h/2}
    # for h = n mod 2, q = 1 - p. It is computed outwards from the mode by the ratios of
    # neighbours, so that the accuracy near the mode does not depend on n.
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

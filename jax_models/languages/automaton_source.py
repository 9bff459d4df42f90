"""Any regular source: a deterministic automaton whose states say what comes next.

In state s a word ends with probability e_s, or goes on with symbol a with probability
P_{sa}, into state δ(s, a). What a prefix of length n looks like is known from two vectors:
forward weights α_t(s) = P(t symbols, then state s), and backward weights
β_m(s) = P(at least m more symbols | s). Given that a word has n symbols, symbol t follows
state s with probability P_{sa} β_{n-t}(δ(s, a)) / β_{n-t+1}(s): sampling is exact, without
rejection, in O(n S V) for all prefixes together and O(n) for each.

Bounded DYCK-k as a source: at most D brackets are open at a time.

Below the largest depth as DYCK-k; at depth D the innermost bracket is closed. Its heights
are a finite automaton of D + 1 states, which gives all laws and the sampler.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int, PRNGKeyArray

from jax_models.arguments import expect_integer, expect_sequence
from jax_models.errors import InputError
from jax_models.languages.bracket_source import BracketSource
from jax_models.languages.dyck import brackets_of
from jax_models.languages.source import Source, check_probability, entropy
from jax_models.run.device_memory import PYTHON_STEP, require_operations


@dataclasses.dataclass(frozen=True)
class AutomatonSource(Source):
    """A probabilistic deterministic automaton, with S states and V symbols.

    Example:
        >>> # PARITY with end probability 1/2: state 1 is an odd number of ones.
        >>> parity = AutomatonSource(
        ...     ((0, 1), (1, 0)), ((0.25, 0.25), (0.5, 0.5)), (0.5, 0.0)
        ... )
        >>> round(parity.levels(3).unigram, 6)
        1.082196

    Attributes:
        transitions: δ [S][V].
        probabilities: P, of the symbols in each state [S][V].
        end_probabilities: e, of ending in each state [S].
        start: the first state.
        label: its name.
        alphabet: names of the symbols; their ids as numerals where it is None.

    Raises:
        InputError: if the shapes disagree, a state does not exist, or a state's
            probabilities are negative or do not add to 1.
    """

    transitions: tuple[tuple[int, ...], ...]
    probabilities: tuple[tuple[float, ...], ...]
    end_probabilities: tuple[float, ...]
    start: int = 0
    label: str = "automaton"
    alphabet: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Checks shapes, states and probabilities."""
        for name in ("transitions", "probabilities"):
            rows = expect_sequence(name, getattr(self, name), "a row for each state")
            for at, row in enumerate(rows):
                expect_sequence(f"{name}[{at}]", row, "a number for each symbol")
        expect_sequence(
            "end_probabilities", self.end_probabilities, "a number for each state"
        )
        expect_integer("start", self.start)
        states = len(self.transitions)
        sizes = {len(row) for row in (*self.transitions, *self.probabilities)}
        counts = {states, len(self.probabilities), len(self.end_probabilities)}
        if len(sizes) != 1 or len(counts) != 1 or 0 in sizes | counts:
            raise InputError(
                f"rows of {sorted(sizes)} symbols, {sorted(counts)} states; expected "
                "transitions and probabilities [S][V] and end probabilities [S]"
            )
        for state in (self.start, *(s for row in self.transitions for s in row)):
            if not 0 <= state < states:
                raise InputError(
                    f"state {state} does not exist; the states are 0 to {states - 1}"
                )
        rows = np.column_stack([self.probabilities, self.end_probabilities])
        # Rounded to floats, the terms may miss 1 by a roundoff each, and by adding them.
        slack = 2 * rows.shape[1] * np.finfo(float).eps
        for state, row in enumerate(rows):
            if not (row >= 0).all() or not abs(row.sum() - 1) <= slack:
                raise InputError(
                    f"state {state} has the probabilities {row.tolist()}, the last of "
                    "ending; expected numbers >= 0 that add to 1"
                )

    @property
    def name(self) -> str:
        """The label."""
        return self.label

    @property
    def symbols(self) -> tuple[str, ...]:
        """The alphabet."""
        return self.alphabet or tuple(map(str, range(len(self.transitions[0]))))

    @property
    def first_symbol(self) -> tuple[float, ...]:
        """Distribution of the symbol that follows in the first state."""
        return (*self.probabilities[self.start], self.end_probabilities[self.start])

    def states(self, tokens: Int[Array, "... tokens"]) -> Int[Array, "... tokens"]:
        """Returns the states after 1, 2, …, n symbols; S where no word goes."""
        num_states, num_symbols = np.shape(self.transitions)
        moves = np.full((num_states + 1, num_symbols + 1), num_states, np.int32)
        possible = np.asarray(self.probabilities) > 0
        moves[:-1, :-1] = np.where(possible, self.transitions, num_states)
        table = jnp.asarray(moves)
        known = (tokens >= 0) & (tokens < num_symbols)
        symbols = jnp.where(known, tokens, num_symbols)

        def step(state: Array, symbol: Array) -> tuple[Array, Array]:
            state = table[state, symbol]
            return state, state

        first = jnp.full(tokens.shape[:-1], self.start, jnp.int32)
        _, met = jax.lax.scan(step, first, jnp.moveaxis(symbols, -1, 0))
        return jnp.moveaxis(met, 0, -1)

    def next_symbol(
        self, tokens: Int[Array, "... tokens"]
    ) -> Float[Array, "... tokens classes"]:
        """Returns the distribution of the symbol after each prefix."""
        rows = np.column_stack([self.probabilities, self.end_probabilities])
        dead = np.zeros((1, rows.shape[1]))
        return jnp.asarray(np.concatenate([rows, dead]))[self.states(tokens)]

    def draw(
        self, key: PRNGKeyArray, length: int, count: int
    ) -> Int[Array, "inputs tokens"]:
        """Draws prefixes from the first symbol to the last."""
        odds = jnp.asarray(np.asarray(self.probabilities))
        table = jnp.asarray(np.asarray(self.transitions, np.int32))

        def back(later: Array, _: None) -> tuple[Array, Array]:
            weights = (odds * later[table]).sum(axis=1)
            # Their scale does not matter, and would underflow.
            return weights / weights.max(), later

        alive = jnp.ones(odds.shape[0], odds.dtype)
        _, laters = jax.lax.scan(back, alive, None, length, reverse=True)
        return follow(key, odds, table, laters, self.start, count)

    def log_survival(self, length: int) -> float:
        """Returns ln P(at least n symbols), by dynamic programming in O(n S^2)."""
        return self._forward(length)[1]

    def joint_states(self, length: int) -> Float[np.ndarray, "symbols states"]:
        """Returns P(x_n = a, state s | at least n symbols), float64."""
        before, total = self._forward(length - 1)
        moves = before[:, None] * np.asarray(self.probabilities)
        if total == -math.inf or not moves.any():
            raise InputError(f"no word of {self.name} has n = {length} symbols")
        law = np.zeros(np.shape(self.transitions)[::-1])
        symbol = np.broadcast_to(np.arange(len(law)), moves.shape)
        np.add.at(law, (symbol, np.asarray(self.transitions)), moves)
        return law / law.sum()

    def joint(self, length: int) -> Float[np.ndarray, "symbols classes"]:
        """Returns the law of the last symbol and what follows it."""
        following = np.column_stack([self.probabilities, self.end_probabilities])
        return self.joint_states(length) @ following

    def optimal_entropy(self, length: int) -> float:
        """Returns Σ_s α_n(s) H(what follows s), nats, n >= 1."""
        following = np.column_stack([self.probabilities, self.end_probabilities])
        entropies = np.array([entropy(row) for row in following])
        return float(self.joint_states(length).sum(axis=0) @ entropies)

    def prefixes(self, length: int) -> Int[np.ndarray, "prefixes tokens"]:
        """Returns every prefix of a length, in the order of their symbols."""
        possible = np.asarray(self.probabilities) > 0
        strings, states = np.zeros((1, 0), np.int32), np.array([self.start])
        for _ in range(length):
            at, symbols = np.nonzero(possible[states])
            strings = np.column_stack([strings[at], symbols.astype(np.int32)])
            states = np.asarray(self.transitions)[states[at], symbols]
        return strings

    def _forward(self, length: int) -> tuple[np.ndarray, float]:
        """The law of the state after n symbols [S], and ln P(at least n symbols)."""
        require_operations(f"{length} symbols", PYTHON_STEP * length)
        size = len(self.transitions)
        kernel = np.zeros((size, size))
        rows = np.broadcast_to(np.arange(size)[:, None], np.shape(self.transitions))
        np.add.at(kernel, (rows, np.asarray(self.transitions)), self.probabilities)
        law, total = np.eye(size)[self.start], 0.0
        for _ in range(length):
            law = law @ kernel
            alive = law.sum()
            if alive == 0:
                return law, -math.inf
            law, total = law / alive, total + math.log(alive)
        return law, total


def follow(
    key: PRNGKeyArray,
    odds: Float[Array, "states symbols"],
    table: Int[Array, "states symbols"],
    laters: Float[Array, "tokens states"],
    start: int,
    count: int,
) -> Int[Array, "inputs tokens"]:
    """Draws paths; a symbol has its odds times the weight of the state after it."""
    chance = jax.random.uniform(key, (len(laters), count), odds.dtype)

    def step(state: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        later, u = now
        ladder = jnp.cumsum(odds * later[table], axis=1)
        goal = ladder[state]
        symbol = (goal <= (u * goal[:, -1])[:, None]).sum(axis=1, dtype=jnp.int32)
        return table[state, symbol], symbol

    first = jnp.full(count, start, jnp.int32)
    _, tokens = jax.lax.scan(step, first, (laters, chance))
    return tokens.T


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

    up_probability: float = 0.25
    num_types: int = 2
    depth: int = 4

    def __post_init__(self) -> None:
        """Checks p, k and D."""
        check_probability("bracket probability p", self.up_probability)
        brackets_of(self.num_types)
        expect_integer("depth", self.depth, 1)

    @property
    def name(self) -> str:
        """The name with types and depth, as in "dyck2_depth4"."""
        return f"dyck{self.num_types}_depth{self.depth}"

    @property
    def max_height(self) -> int:
        """D."""
        return self.depth

    @property
    def heights(self) -> AutomatonSource:
        """The height as a source of its own: 0 is a step up, 1 a step down."""
        deepest = self.depth
        ups = [float(u) for u in self.up_probabilities(np.arange(deepest + 1))]
        return AutomatonSource(
            tuple((min(h + 1, deepest), max(h - 1, 0)) for h in range(deepest + 1)),
            tuple((up, 1 - up if h else 0.0) for h, up in enumerate(ups)),
            (1 - ups[0], *[0.0] * deepest),
            label=f"heights of {self.name}",
        )

    def up_probabilities(self, heights: np.ndarray) -> np.ndarray:
        """Returns p below depth D, and 0 there."""
        return np.where(np.asarray(heights) < self.depth, self.up_probability, 0.0)

    def step_law(self, length: int) -> np.ndarray:
        """Returns P(step n goes up or down, H_n = h) [2, D + 1], O(n D^2)."""
        return self.heights.joint_states(length)

    def log_survival(self, length: int) -> float:
        """Returns ln P(at least n symbols), O(n D^2)."""
        return self.heights.log_survival(length)

    def draw_steps(
        self, key: PRNGKeyArray, length: int, count: int
    ) -> Int[Array, "inputs tokens"]:
        """Draws walks forwards, each step given that the walk survives."""
        return 1 - 2 * self.heights.draw(key, length, count)

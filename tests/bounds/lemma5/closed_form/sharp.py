"""One-layer attention on which the bounds are nearly attained.

Each case isolates one ingredient of Lemma 5, so that a bound without it fails here: the
factor 1/n, the exponent 2A, the change of the weights. f_act returns the average, the
row j that is read has the activation (1, 0); everything in plain NumPy, one query.
"""

import dataclasses

import numpy as np

from bounds.lemma5.closed_form import DotProduct, HeadConstants, LayerConstants


@dataclasses.dataclass(frozen=True)
class Case:
    """Logits are mu times the product of first coordinates."""

    name: str
    mu: float
    keys: np.ndarray
    step: np.ndarray

    @property
    def length(self) -> int:
        return len(self.keys)

    @property
    def distance(self) -> float:
        return float(np.linalg.norm(self.step)) * (1 + 1e-15)

    @property
    def layer(self) -> LayerConstants:
        moved = np.concatenate([self.keys, self.keys[:1] + self.step])
        norm = float(np.linalg.norm(moved, axis=1).max()) * (1 + 1e-15)
        heads = (HeadConstants(DotProduct(self.mu), 1.0),)
        return LayerConstants(norm=norm, heads=heads, skip_gain=0.0)

    @property
    def exact(self) -> float:
        """The change of the average at j when key 0 takes its step."""
        after = self.keys.copy()
        after[0] += self.step
        return float(np.linalg.norm(self._average(after) - self._average(self.keys)))

    def _average(self, keys: np.ndarray) -> np.ndarray:
        weights = np.exp(self.mu * keys[:, 0])
        return weights @ keys / weights.sum()


def _keys(length: int, value: float) -> np.ndarray:
    """Key 0 (that is i) and key 1 (that is j) at (1, 0), the others at (value, 0)."""
    keys = np.full((length, 2), [value, 0.0])
    keys[:2, 0] = 1.0
    return keys


CASES = (
    # Equal weights, so the change is D/n exactly.
    Case("uniform, n = 2", 0.0, _keys(2, 1.0), np.array([0.0, 0.5])),
    Case("uniform, n = 8", 0.0, _keys(8, 1.0), np.array([0.0, 0.5])),
    # The heaviest key moves across the logits: weights stay as they are.
    Case("heavy key", 3.0, _keys(1000, -1.0), np.array([0.0, 1e-2])),
    # The heaviest key moves along the logits: its weight falls too.
    Case("moving weight", 2.0, _keys(20000, -1.0), np.array([-1e-3, 0.0])),
)

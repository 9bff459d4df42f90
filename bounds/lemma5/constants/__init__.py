"""Constants of a model, and the closed forms of Lemma 5 evaluated on them.

The closed forms take numbers; here the numbers are read off a transformer, as rigorous
upper bounds: norms of embeddings, weights and biases, temperatures, LayerNorms.
"""

from bounds.lemma5.constants.closed_forms import (
    ClosedForms,
    PrintedInfluence,
    closed_form_bounds,
    evaluate_closed_forms,
)
from bounds.lemma5.constants.model_constants import (
    EmbeddingNorms,
    ModelConstants,
    read_constants,
)
from bounds.lemma5.constants.row_form import NormConstants

__all__ = [
    "ClosedForms",
    "EmbeddingNorms",
    "ModelConstants",
    "NormConstants",
    "PrintedInfluence",
    "closed_form_bounds",
    "evaluate_closed_forms",
    "read_constants",
]

"""Bounds on what attention can and cannot compute: exact, certified, estimated.

`compute_influence` gives the exact influence of every single-symbol substitution,
`scan` what each of them does to every row and every entry of a target,
`supremum` the largest over all inputs of a length, where positions are few or none,
`certify_influence` what is certain of it for the same input, in less time,
`closed_form_bounds` what is certain of it for all inputs of a length. `find_restriction`
makes the output of a hard-attention model constant by fixing few bits, and
`find_counterexample` finds two inputs that it cannot tell apart. `simulate` finds
temperatures at which softmax provably does what hard attention does, and `measure_entropy`
sets a model's cross-entropy on PARITY or 2DYCK beside the floor that its influence leaves.
"""

from bounds.all_inputs import Supremum, search_inputs, supremum
from bounds.curves.curve import BoundCurve, bound_curve
from bounds.entropy import ModelEntropy, measure_entropy
from bounds.influence import Callable, Influence, compute_influence
from bounds.influence.scan import Frobenius, Scan, scan
from bounds.lemma5.certificate import Certificate, certify_influence
from bounds.lemma5.constants import closed_form_bounds, read_constants
from bounds.lemma5.lipschitz import (
    LipschitzEstimate,
    estimate_lipschitz,
    lipschitz_curve,
)
from bounds.restriction import (
    Restriction,
    find_counterexample,
    find_restriction,
)
from bounds.simulation import (
    Simulation,
    SimulationCurve,
    simulate,
    simulation_curve,
)
from bounds.store.results import read_store
from jax_models.run.mesh import device_mesh

__all__ = [
    "BoundCurve",
    "Callable",
    "Certificate",
    "Frobenius",
    "Influence",
    "LipschitzEstimate",
    "ModelEntropy",
    "Restriction",
    "Scan",
    "Simulation",
    "SimulationCurve",
    "Supremum",
    "bound_curve",
    "certify_influence",
    "closed_form_bounds",
    "compute_influence",
    "device_mesh",
    "estimate_lipschitz",
    "find_counterexample",
    "find_restriction",
    "lipschitz_curve",
    "measure_entropy",
    "read_constants",
    "read_store",
    "scan",
    "search_inputs",
    "simulate",
    "simulation_curve",
    "supremum",
]


def __dir__() -> list[str]:
    """Returns the functions and types; modules by topic stand in docs/api.md."""
    return sorted(__all__)

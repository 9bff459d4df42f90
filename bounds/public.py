"""The names that `bounds` promises, gathered."""

from bounds import recipes
from bounds.all_inputs import Supremum, search_inputs, supremum
from bounds.curves.curve import BoundCurve, bound_curve
from bounds.entropy import ModelEntropy, measure_entropy
from bounds.influence import (
    Callable,
    Exhaustive,
    Incremental,
    Influence,
    Lumped,
    Partial,
    Proposed,
    Run,
    Screened,
    compute_influence,
)
from bounds.influence.scan import scan
from bounds.influence.table.frobenius import Frobenius
from bounds.influence.table.result import Scan
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
from bounds.sensitivity import Sensitivity, average_sensitivity
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
    "Exhaustive",
    "Frobenius",
    "Incremental",
    "Influence",
    "LipschitzEstimate",
    "Lumped",
    "ModelEntropy",
    "Partial",
    "Proposed",
    "Restriction",
    "Run",
    "Scan",
    "Screened",
    "Sensitivity",
    "Simulation",
    "SimulationCurve",
    "Supremum",
    "average_sensitivity",
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
    "recipes",
    "scan",
    "search_inputs",
    "simulate",
    "simulation_curve",
    "supremum",
]

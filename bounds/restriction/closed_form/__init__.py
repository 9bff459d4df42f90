"""Explicit bounds on the input length that hard attention of a given depth can handle.

Three routes to a length from which on L layers of H heads cannot compute PARITY, and
one for DYCK; each is a proof with its parameters. All come down to a restriction: some
bits are fixed so that the output no longer depends on the rest.
"""

from bounds.restriction.closed_form.dyck import (
    DyckParameters,
    closed_form_dyck,
    dyck_threshold,
    one_layer_dyck_threshold,
)
from bounds.restriction.closed_form.reductions import (
    Weight,
    alteration_route,
    paper_route,
)
from bounds.restriction.closed_form.route_switching import (
    SwitchingProof,
    SwitchingStep,
    closed_form_switching,
    deep_probability,
    depth_tails,
    switching_proof,
)
from bounds.restriction.closed_form.routes import (
    Route,
    computable_length,
    dyck_routes,
    one_layer_parity_threshold,
    parity_routes,
    switching_routes,
)
from bounds.restriction.closed_form.tower import Tower

__all__ = [
    "DyckParameters",
    "Route",
    "SwitchingProof",
    "SwitchingStep",
    "Tower",
    "Weight",
    "alteration_route",
    "closed_form_dyck",
    "closed_form_switching",
    "computable_length",
    "deep_probability",
    "depth_tails",
    "dyck_routes",
    "dyck_threshold",
    "one_layer_dyck_threshold",
    "one_layer_parity_threshold",
    "paper_route",
    "parity_routes",
    "switching_proof",
    "switching_routes",
]

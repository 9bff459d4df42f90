"""Closed forms for the distance of softmax at a temperature from hard attention.

One module per group of statements of Yang, Strobl, Chiang and Angluin: weights of one
row (a gap, decay, a table lookup, tie-breaking, perturbed scores), their effect on values
and Booleans, and the temperature for a whole network.
"""

from bounds.simulation.closed_form.booleans import (
    amplifier_weight,
    gated_rounding_error,
    growing_amplifier_weight,
    rounding_error,
    rounding_width,
)
from bounds.simulation.closed_form.simulation_temperature import (
    NetworkShape,
    activation_bound,
    layer_error,
    perturbed_distance,
    perturbed_ties_distance,
    simulation_temperature,
    tied_simulation_temperature,
    value_transfer,
)
from bounds.simulation.closed_form.weights_of_a_row import (
    boolean_tie_break,
    constant_gap_distance,
    constant_gap_temperature,
    cubic_lookup_error,
    cubic_lookup_weight,
    distinct_multiples_distance,
    leftmost_tie_break,
    linear_decay_distance,
    lookup_error,
    lookup_weight,
    one_sided_decay_distance,
    quadratic_decay_distance,
    reciprocal_tie_break,
    rightmost_tie_break,
    tie_break_range,
)

__all__ = [
    "NetworkShape",
    "activation_bound",
    "amplifier_weight",
    "boolean_tie_break",
    "constant_gap_distance",
    "constant_gap_temperature",
    "cubic_lookup_error",
    "cubic_lookup_weight",
    "distinct_multiples_distance",
    "gated_rounding_error",
    "growing_amplifier_weight",
    "layer_error",
    "leftmost_tie_break",
    "linear_decay_distance",
    "lookup_error",
    "lookup_weight",
    "one_sided_decay_distance",
    "perturbed_distance",
    "perturbed_ties_distance",
    "quadratic_decay_distance",
    "reciprocal_tie_break",
    "rightmost_tie_break",
    "rounding_error",
    "rounding_width",
    "simulation_temperature",
    "tie_break_range",
    "tied_simulation_temperature",
    "value_transfer",
]

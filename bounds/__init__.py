"""Bounds on what attention can and cannot compute: exact, certified, estimated.

`compute_influence` gives the exact influence of every single-symbol substitution,
`scan` the change that each of them makes to every row and entry of a target,
`supremum` the largest influence over all inputs of a length, where positions are few or
none, `certify_influence` proven bounds on influences for one input, in less time,
`closed_form_bounds` proven bounds for all inputs of a length. `find_restriction`
makes the output of a hard-attention model constant by fixing few bits, and
`find_counterexample` finds two inputs that it cannot tell apart. `simulate` finds
temperatures at which softmax provably does what hard attention does, and `measure_entropy`
sets a model's cross-entropy on PARITY or 2DYCK beside the floor that its influence leaves.
"""

from typing import TYPE_CHECKING, Any

from jax_models.on_demand import find_public

if TYPE_CHECKING:
    from bounds.public import *  # noqa: F403 - what is promised there is here
    from bounds.public import __all__ as __all__


def __getattr__(name: str) -> Any:
    """A promised name; the first use imports it, and JAX."""
    return find_public(__name__, name)


def __dir__() -> list[str]:
    """Promised names."""
    return find_public(__name__, "__all__")

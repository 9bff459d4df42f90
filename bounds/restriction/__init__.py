"""Restrictions of hard-attention transformers: what a few fixed bits decide.

A restriction fixes some positions of an input and leaves the others free. Where all
completions get one output, the model cannot compute a language in which they differ
(Hahn 2020, Theorem 1). `find_restriction` and `find_counterexample` search for one;
`checker`, which shares no code with the search, verifies its certificate from the file
and the model alone; `sensitivity` says of which languages a restriction leaves the
answer, whether an input is a member, open.
"""

from bounds.restriction.checker import Verification, check_certificate
from bounds.restriction.checking.claim import read_certificate
from bounds.restriction.counterexample import find_counterexample
from bounds.restriction.restriction import Restriction, find_restriction
from bounds.restriction.sensitivity import (
    ForcedAnswer,
    ReachableClasses,
    first_impossible_length,
    most_free_forced,
    reachable_classes,
)

__all__ = [
    "ForcedAnswer",
    "ReachableClasses",
    "Restriction",
    "Verification",
    "check_certificate",
    "find_counterexample",
    "find_restriction",
    "first_impossible_length",
    "most_free_forced",
    "reachable_classes",
    "read_certificate",
]

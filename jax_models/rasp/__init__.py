"""S-RASP-like programs: sequences defined from sequences, parsed and evaluated."""

from jax_models.rasp.check import CheckedProgram, check_program
from jax_models.rasp.evaluate import evaluate_program
from jax_models.rasp.parser import parse_program
from jax_models.rasp.programs import PROGRAMS, dyck_program, k_hop_program

__all__ = [
    "PROGRAMS",
    "CheckedProgram",
    "check_program",
    "dyck_program",
    "evaluate_program",
    "k_hop_program",
    "parse_program",
]

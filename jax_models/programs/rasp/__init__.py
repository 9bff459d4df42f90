"""S-RASP-like programs: parsed, evaluated, and compiled to average-hard transformers."""

from jax_models.programs.rasp.compile import (
    CompiledProgram,
    build_model,
    compile_program,
    longest_exact_length,
    read_result,
)
from jax_models.programs.rasp.lower import ProgramPlan, plan_program
from jax_models.programs.rasp.programs import PROGRAMS, dyck_program, k_hop_program
from jax_models.programs.rasp.semantics import evaluate_program
from jax_models.programs.rasp.syntax import CheckedProgram, check_program, parse_program

__all__ = [
    "PROGRAMS",
    "CheckedProgram",
    "CompiledProgram",
    "ProgramPlan",
    "build_model",
    "check_program",
    "compile_program",
    "dyck_program",
    "evaluate_program",
    "k_hop_program",
    "longest_exact_length",
    "parse_program",
    "plan_program",
    "read_result",
]

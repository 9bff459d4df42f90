"""Flags to a question about influences, checked against the model and its shortest input."""

from absl import flags

from bounds.cli.flags import validate_grammar
from bounds.influence.substitution import check_query
from bounds.measurement import Question
from bounds.notation import parse_bytes
from jax_models.evaluate import require_readout
from jax_models.transformer import Transformer


def define_memory_limit(values: flags.FlagValues) -> None:
    """Add `--memory_limit`."""
    flags.DEFINE_string(
        "memory_limit",
        None,
        "Memory for the blocks that are under way on a device, with what they share, as "
        "in 512MiB or 8GiB: less makes smaller blocks. By default half of what the "
        "device has.",
        flag_values=values,
    )
    validate_grammar(values, "memory_limit", parse_bytes)


def read_question(
    options: flags.FlagValues, model: Transformer, length: int
) -> Question:
    """Returns the question that the flags ask.

    Args:
        options: Flags of `define_question` and `define_memory_limit`.
        model: The model.
        length: The least that it is asked at.

    Raises:
        InputError: There is no such query there, or the model has no logits.
    """
    check_query(options.query, length)
    if options.target == "logits":
        require_readout(model)
    limit = options.memory_limit
    return Question(
        options.query,
        options.target,
        options.method,
        options.ties,
        None if limit is None else parse_bytes(limit),
    )

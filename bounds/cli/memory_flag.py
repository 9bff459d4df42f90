"""The flag that limits the memory of the blocks that a method works in."""

from absl import flags

from bounds.cli.flags import validate_grammar
from bounds.notation import parse_bytes


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


def memory_limit(options: flags.FlagValues) -> int | None:
    """Returns `--memory_limit` in bytes, None where it is not given."""
    text = options.memory_limit
    return None if text is None else parse_bytes(text)

"""Flags of commands that have no class of options yet, made of groups of options."""

from collections.abc import Sequence

from absl import flags

from bounds.cli.shared import groups
from bounds.cli.shared.options import adding, define, fields_of
from bounds.cli.shared.values import IntegersParser, TupleSerializer

define_store = adding(groups.Stored, "fresh")
define_figure = adding(groups.Figure, "figure_format")
define_dtype = adding(groups.Computed, "dtype")
define_weighting = adding(groups.Weighted, "weighting temperature")
define_query = adding(groups.Query, "query")
define_ties = adding(groups.Ties, "ties")
define_method = adding(groups.Method, "method ties")
define_stopping = adding(groups.Stopping, "rtol budget")
define_model = adding(
    groups.Model, " ".join(["model head preset c vocab_size", *fields_of(groups.Shape)])
)


def define_inputs(values: flags.FlagValues, default_count: None) -> None:
    """Adds `--tokens`, `--text`, `--language`."""
    define(values, groups.Inputs, ["tokens", "text", "language"])


def define_output(values: flags.FlagValues, command: str) -> None:
    """Adds `--out`, `--overwrite` and `--seed`."""
    define(values, type("Named", (groups.Output,), {"COMMAND": command}))


def define_integers(
    values: flags.FlagValues, name: str, text: str, what: str = "integers"
) -> None:
    """Adds a flag of integers from 0 to 2^31 - 1; `what` names them in errors."""
    parser, writer = IntegersParser(what), TupleSerializer()
    flags.DEFINE(parser, name, None, text, flag_values=values, serializer=writer)


def integers(entries: Sequence[int] | None) -> list[int] | None:
    """Value of a flag of `define_integers`; None where it was not given."""
    return None if entries is None else list(entries)

"""Changes of one row, of many or of all, by every substitution in one input of a model.

`scan.csv` lists every cell with its symbols; `scan.npz` has the arrays, `scan.json` the
largest cell; the figure is a heat map of substitutes, or a map of rows against positions.
Long work is kept in --out in parts of positions as they are found: the same command
continues where it stopped.
"""

import dataclasses

from bounds.cli.shared.groups import Figure, Incremental, OneInput, Ties
from bounds.cli.shared.options import again, option
from bounds.cli.shared.values import IntegersParser

# The one format that not all commands draw.
PAGE = "html"
RECIPES = (
    *("masked_marginals", "wild_type_marginals", "dependency_map"),
    *("categorical_jacobian", "mutagenesis"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScanOptions(OneInput, Ties, Incremental, Figure):
    """Options of the command."""

    COMMAND = "scan"

    recipe: str | None = option(
        None,
        "A scan by the name of its field, which sets what is replaced and watched and what "
        "is made of it: {words} (docs/recipes.md).",
        RECIPES,
    )
    edit: str = option(
        "replace",
        "What is done to a position: replace puts in every substitute in turn, delete "
        "deletes its token.",
        ("replace", "delete"),
    )
    rows: str | None = option(
        None,
        "Rows whose output is watched: a position, negative ones counting from the end, "
        "several separated by commas, all, or own, each position's own row. By default the "
        "row of a classifier's head, else the last.",
        check="bounds.cli.scan_parts:parse_rows",
    )
    target_symbols: tuple[str, ...] | None = option(
        None,
        "Entries of logits or log_probabilities that alone count: symbols by name (with a "
        "tokenizer) or number, separated by commas.",
    )
    reduce: str | None = option(
        None,
        "What is made of the changes: none keeps them signed with the target's axis, max "
        "is the largest over substitutes and entries, mean that over substitutes, "
        "frobenius the map of the categorical Jacobian, centred and less its average "
        "product but for :nocenter and :noapc, symmetrised by :tensor or :map. By default "
        "a target of one entry is signed, of others it is the norm.",
        check="bounds.cli.scan_parts:parse_reduce",
    )
    diagonal: bool = option(
        True, "Whether cells whose position is the row count; else they are 0."
    )
    positions: tuple[int, ...] | None = option(
        None,
        "Positions that are changed, from 0, separated by commas; by default all, but "
        "for special symbols of a tokenizer.",
        parser=IntegersParser("positions"),
    )
    method: str = option(
        "auto",
        "How changes are computed; auto picks the cheapest, all are exact.",
        *("auto", "bounds.influence.choice:TABLE_METHOD_NAMES"),
    )
    figure_format: tuple[str, ...] = again(
        Figure,
        "figure_format",
        "png",
        " A page (html) is to hover over.",
        words=("bounds.store.pictures:FORMATS", PAGE),
    )
    top: int = option(
        0,
        "Cells of largest absolute value that are printed and written to top.csv.",
        least=0,
        most=10**6,
        key=False,
    )
    first_residue: int = option(
        1,
        "Number of the first residue in tables and figures of letters; special symbols do "
        "not count.",
        least=-(10**6),
        most=10**6,
        key=False,
    )
    figure: str = option(
        "auto",
        "What is drawn: map of rows against positions, heat map of substitutes, or the "
        "input in letters as high as the largest change there; auto is a map of rows "
        "where several are watched, else heat.",
        "bounds.influence.table.view:SHAPES",
        key=False,
    )

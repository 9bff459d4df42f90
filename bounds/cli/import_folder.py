"""A local checkpoint of Hugging Face as a model file, compared with references.

Families and heads: docs/checkpoints.md. The file is `model.safetensors` in --out;
`import.json` beside it holds its SHA-256 and what the checks found.

    --folder=checkpoint --out=results/mine
    --folder=checkpoint --dtype=float64 --check=rows.safetensors --out=results/checked
"""

from typing import Any

from bounds.cli.shared.groups import Head, Output, Platform
from bounds.cli.shared.options import option
from bounds.cli.shared.runner import Work, model_exports
from jax_models.errors import InputError
from jax_models.format.pretrained.load import (
    compare_outputs,
    describe_skipped,
    read_folder,
)


class ImportOptions(Head, Platform, Output):
    """Options of the command."""

    DRAWS = lambda _: False

    folder: str | None = option(None, "The folder of the checkpoint.")
    dtype: str | None = option(
        None,
        "Float type of the file; by default the checkpoint's, half precision as float32.",
        *("float32", "float64"),
    )
    check: str | None = option(
        None,
        "A safetensors file of reference outputs to compare with: tokens [n], and rows "
        "[n, d], logits [n, c] or both.",
    )
    tokenizer: str | None = option(
        None,
        "Folder with tokenizer.json or vocab.txt, or one such file: symbols that it does "
        "not name, and special ones, are not substituted. By default the folder's own.",
    )


def plan(options: ImportOptions) -> Work:
    """Work that writes a checkpoint's model, once compared with the reference of --check."""
    if options.folder is None:
        raise InputError("--folder is missing; give the folder of a checkpoint")
    model, skipped = read_folder(
        options.folder,
        dtype=options.dtype,
        head=options.head,
        tokenizer=options.tokenizer,
    )
    about: dict[str, Any] = {"skipped": skipped}
    report = f"{describe_skipped(skipped)}L = {len(model.layers)}, d = {model.width}, "
    report += f"V = {model.vocab_size}, {model.dtype}"
    if options.check is not None:
        apart = compare_outputs(model, options.check)
        about["largest_difference"] = apart
        report += f", within {max(apart.values()):.2g} of --check"
    exports = model_exports(model, about, lambda digest: f"{report}, SHA-256 {digest}")
    return Work(lambda _: exports)

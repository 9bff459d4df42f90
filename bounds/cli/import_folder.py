"""The model of a local checkpoint as a file."""

import re
from collections import Counter
from typing import Any

from bounds.cli.options.import_folder import ImportOptions
from bounds.cli.shared.platforms import prepare_jax
from bounds.cli.shared.runner import Work, model_exports
from jax_models.errors import InputError
from jax_models.format.pretrained.load import read_folder
from jax_models.format.pretrained.reference import compare_outputs


def plan(options: ImportOptions) -> Work:
    """The model's file, compared with the reference."""
    if options.folder is None:
        raise InputError("--folder is missing; give the folder of a checkpoint")
    prepare_jax(options)
    model, skipped = read_folder(
        options.folder,
        dtype=options.dtype,
        head=options.head,
        tokenizer=options.tokenizer,
    )
    about: dict[str, Any] = {"skipped": skipped}
    report = ""
    if skipped:
        kinds = Counter(re.sub(r"\d+", "#", name) for name in skipped)
        named = (x if n == 1 else f"{x} ({n} of them)" for x, n in kinds.items())
        report = f"Skipped, as nothing of this model reads them: {', '.join(named)}\n"
    report += f"L = {len(model.layers)}, d = {model.width}, V = {model.vocab_size}, "
    report += str(model.dtype)
    if options.check is not None:
        apart = compare_outputs(model, options.check)
        about["largest_difference"] = apart
        report += f", within {max(apart.values()):.2g} of --check"
    exports = model_exports(model, about, lambda digest: f"{report}, SHA-256 {digest}")
    return Work(lambda _: exports)

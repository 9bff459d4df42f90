"""Write the model of a local checkpoint: a Hugging Face folder as a model file.

Families and heads: docs/checkpoints.md. The file is `model.safetensors` in --out;
`import.json` beside it holds its SHA-256 and what the checks found.
"""

import re
from collections import Counter
from typing import Any

from absl import flags

from bounds.cli.shared import flags as shared
from bounds.cli.shared.platforms import define_platform, prepare_jax
from bounds.cli.shared.record import Output
from jax_models.errors import InputError
from jax_models.format.pretrained.load import read_folder
from jax_models.format.pretrained.reference import compare_outputs


def define_flags() -> flags.FlagValues:
    """Returns the flags of the command."""
    values = flags.FlagValues()
    flags.DEFINE_string(
        "folder", None, "The folder of the checkpoint.", flag_values=values
    )
    shared.define_head(values)
    flags.DEFINE_enum(
        "dtype",
        None,
        ["float32", "float64"],
        "Float type of the file; by default the checkpoint's, half precision as float32.",
        flag_values=values,
    )
    flags.DEFINE_string(
        "check",
        None,
        "A safetensors file of reference outputs to compare with: tokens [n], and rows "
        "[n, d], logits [n, c] or both.",
        flag_values=values,
    )
    flags.DEFINE_string(
        "tokenizer",
        None,
        "Folder with tokenizer.json or vocab.txt, or one such file: symbols that it does "
        "not name, and special ones, are not substituted. By default the folder's own.",
        flag_values=values,
    )
    define_platform(values)
    shared.define_output(values, "import")
    return values


def run(options: flags.FlagValues) -> None:
    """Read the folder, compare, and write the model.

    Raises:
        InputError: The folder is not whole, asks what is not supported, or its model
            differs from the reference.
    """
    if options.folder is None:
        raise InputError("--folder is missing; give the folder of a checkpoint")
    prepare_jax(options)
    model, skipped = read_folder(
        options.folder,
        dtype=options.dtype,
        head=options.head,
        tokenizer=options.tokenizer,
    )
    apart = None if options.check is None else compare_outputs(model, options.check)
    output = Output.of("import", options)
    about: dict[str, Any] = {"skipped": skipped}
    about |= {} if apart is None else {"largest_difference": apart}
    path = output.path("model.safetensors")
    with output.exports() as staged:
        record = staged.write_model(model, about)
    if skipped:
        kinds = Counter(re.sub(r"\d+", "#", name) for name in skipped)
        named = (x if n == 1 else f"{x} ({n} of them)" for x, n in kinds.items())
        print(f"Skipped, as nothing of this model reads them: {', '.join(named)}")
    checked = "" if apart is None else f", within {max(apart.values()):.2g} of --check"
    print(
        f"{path}: L = {len(model.layers)}, d = {model.width}, V = {model.vocab_size}, "
        f"{model.dtype}{checked}, SHA-256 {record['model_sha256']}"
    )

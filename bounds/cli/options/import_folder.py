"""Write the model of a local checkpoint: a Hugging Face folder as a model file.

Families and heads: docs/checkpoints.md. The file is `model.safetensors` in --out;
`import.json` beside it holds its SHA-256 and what the checks found.
"""

import dataclasses

from bounds.cli.shared.groups import Head, Output, Platform
from bounds.cli.shared.options import option


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImportOptions(Head, Platform, Output):
    """Options of the command."""

    COMMAND = "import"
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

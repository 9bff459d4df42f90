"""The pooling that folders of sentence-transformers state beside a model.

`modules.json` lists what follows the transformer: a pooling, whose folder has a
`config.json` of one mode, and a division by the Euclidean norm.
"""

import json
from pathlib import Path
from typing import Any

from jax_models.arguments import CONFIG_BYTES, has_file, read_file, show
from jax_models.errors import InputError

# Modes that are read, by the format's words for them.
MODES = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "first",
    "pooling_mode_lasttoken": "last",
}
OTHERWISE = "leave {} out to read the rows alone"


def read_pooling(folder: Path, width: int) -> dict[str, Any] | None:
    """Returns the format's entry for the pooling of a folder, None where it has none."""
    listed, normalised = folder / "modules.json", False
    path = folder / "1_Pooling" / "config.json"
    if has_file("file", listed):
        modules = _read(listed)
        if not isinstance(modules, list) or not all(
            isinstance(one, dict) and isinstance(one.get("type"), str)
            for one in modules
        ):
            raise InputError(f"{str(listed)!r} holds {show(modules)}; expected modules")
        kinds = [one["type"].rpartition(".")[2] for one in modules]
        if kinds[:1] != ["Transformer"] or kinds[1:] not in (
            [],
            ["Pooling"],
            ["Pooling", "Normalize"],
        ):
            raise InputError(
                f"{str(listed)!r} lists {', '.join(kinds)}; expected Transformer, then "
                f"Pooling, then Normalize; {OTHERWISE.format('modules.json')}"
            )
        if len(kinds) == 1:
            return None
        path = folder / str(modules[1].get("path", "1_Pooling")) / "config.json"
        normalised = len(kinds) == 3
    elif not has_file("file", path):
        return None
    asked = _read(path)
    modes = [
        name
        for name, on in (asked.items() if isinstance(asked, dict) else ())
        if name.startswith("pooling_mode_") and on
    ]
    if len(modes) != 1 or modes[0] not in MODES:
        raise InputError(
            f"{str(path)!r} asks for {' and '.join(modes) or 'no mode'}; expected one of "
            f"{', '.join(MODES)}; {OTHERWISE.format('the pooling')}"
        )
    if asked.get("word_embedding_dimension", width) != width:
        raise InputError(
            f"word_embedding_dimension in {str(path)!r} is "
            f"{show(asked['word_embedding_dimension'])}, and the model's rows have {width} "
            f"numbers: it is another model's; {OTHERWISE.format('the pooling')}"
        )
    return {"kind": MODES[modes[0]], "normalised": normalised}


def _read(path: Path) -> Any:
    if not has_file("file", path):
        raise InputError(
            f"modules.json of {str(path.parent.parent)!r} names a pooling, and there is "
            f"no file {str(path)!r}"
        )
    content = read_file("file", path, CONFIG_BYTES)
    try:
        return json.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise InputError(f"{str(path)!r} is not JSON: {error}") from error

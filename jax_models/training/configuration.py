"""Two runs' configurations beside one another: what differs, in a few words."""

import json
from collections.abc import Mapping
from typing import Any

MOST_SHOWN = 40  # characters of a value


def describe_difference(
    there: Mapping[str, Any], here: Mapping[str, Any]
) -> str | None:
    """Returns which entry of two configurations differs first, None where none does.

    Args:
        there: of the checkpoint.
        here: of this run.
    """
    for name in (*here, *(name for name in there if name not in here)):
        one, other = there.get(name), here.get(name)
        if one == other and (name in there) == (name in here):
            continue
        if isinstance(one, dict) and isinstance(other, dict):
            return describe_difference(one, other)
        return f"its {name} is {_shown(one)}, here {_shown(other)}"
    return None


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 3] + "..."

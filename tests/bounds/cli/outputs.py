"""What a command wrote, as the tests of commands read it."""

import csv
import fnmatch
import json
from pathlib import Path

import pytest

from bounds.cli.shared.columns import FILES


def written_by(name, end):
    """A file of that end: a command's own, or the one at a path."""
    return Path(name if "/" in str(name) else f"results/{name}/{name}.{end}")


def read_csv(name):
    with written_by(name, "csv").open(newline="") as file:
        return list(csv.DictReader(file))


def read_json(name):
    # NaN and infinity are no JSON, though Python would read them.
    text = written_by(name, "json").read_text()
    return json.loads(text, parse_constant=pytest.fail)


def find_words(file, name):
    """Meaning of a column or key of a file in `FILES`; None if unknown."""
    words = FILES[file]
    for known in words:
        if fnmatch.fnmatchcase(name, known):
            return words[known]
    return None

"""What a command wrote, as the tests of commands read it."""

import csv
import json
from pathlib import Path

import pytest


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

"""A small store of results, for the tests of stores."""

import contextlib
import sqlite3

from bounds.store.results import ResultStore

CONFIG = {"command": "curve", "length": 16, "dtype": "float64", "seed": 7}


def config(index):
    return {**CONFIG, "input": index}


def fill(path):
    """A store of three results, `influence` 0.1, 1.1 and 2.1; returns its path."""
    with ResultStore(path) as store:
        for index in range(3):
            store.record(config(index), {"influence": 0.1 + index}, seconds=0.5)
    return path


def execute(path, statement, values=()):
    """What a statement finds or changes in a store, behind its program's back."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as store:
        return store.execute(statement, values).fetchall()

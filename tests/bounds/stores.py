"""A small store of results, for the tests of stores."""

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

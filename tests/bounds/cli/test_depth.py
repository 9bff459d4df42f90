"""The command `depth`: what is printed and written, at any size, and what is refused."""

import math
from fractions import Fraction

import pytest

from bounds.restriction.closed_form import SwitchingStep, switching_proof
from tests.bounds.cli.outputs import read_json


def depth(run, *flags):
    result = run("depth", *flags).done()
    return read_json("depth"), result.out


@pytest.mark.parametrize(
    ("shape", "parity", "dyck"),
    [((1, 1), (2, 3), 4), ((1, 8), (9, 10), 32), ((2, 1), (4, 37), 720),
     ((2, 8), (81, 974), 8640), ((3, 1), (8, 2805), 1654784)],
)  # fmt: skip
def test_it_is_no_worse_than_the_published_tables(run, shape, parity, dyck):
    layers, heads = shape
    record, out = depth(run, f"--num_layers={layers}", f"--num_heads={heads}")
    assert (record["num_layers"], record["num_heads"]) == shape
    assert (record["parity"]["route"] == "one layer, exact") == (layers == 1)
    assert record["parity"]["possible_up_to"] == parity[0]
    assert parity[0] < record["parity"]["impossible_from"] <= parity[1]
    assert parity[0] < record["dyck"]["impossible_from"] <= dyck
    for language in ("parity", "dyck"):
        one = record[language]
        assert one["route"] in record["routes"][language]
        route = record["routes"][language][one["route"]]
        assert route["impossible_from"] == one["impossible_from"]
        assert route["parameters"] == one["parameters"]
        assert all(
            other["impossible_from"] is None
            or other["impossible_from"] >= one["impossible_from"]
            for other in record["routes"][language].values()
        )
        assert f"impossible from n = {one['impossible_from']} on" in out
        assert f"possible up to n = {one['possible_up_to']}" in out


def test_the_parameters_written_are_the_proof(run):
    record, _ = depth(run, "--num_layers=2", "--num_heads=3")
    steps = [
        SwitchingStep(Fraction(one["p"]), one["t"])
        for one in record["parity"]["parameters"]["steps"]
    ]
    assert switching_proof(3, steps).length == record["parity"]["impossible_from"]


def test_numbers_beyond_floats_are_logarithms_or_text(run):
    record, out = depth(run, "--num_layers=150", "--num_heads=200")
    parity = record["parity"]
    assert parity["possible_up_to"] is None
    assert parity["log10_possible_up_to"] == pytest.approx(150 * math.log10(201))
    assert parity["impossible_from"] is None
    assert parity["log10_impossible_from"] > parity["log10_possible_up_to"]
    paper = record["routes"]["parity"]["paper, A = 1/k^2"]
    assert paper["impossible_from"] is None
    assert paper["impossible_from_text"].startswith("a tower of 149 twos below")
    assert paper["impossible_from_text"] in out
    assert record["dyck"]["log10_impossible_from"] > parity["log10_impossible_from"]


def test_the_share_enters_the_papers_routes_alone(run):
    low, _ = depth(run, "--free=1/2")
    high, _ = depth(run, "--free=0.9")
    assert low["parity"] == high["parity"]
    routes = "alteration", "paper, A = 1/k^2", "paper, A = 1/(f+1)"
    published = {"1/2": (391, 73567, 21031), "0.9": (1711, 6221631, 607271)}
    for record, share in ((low, "1/2"), (high, "0.9")):
        found = record["routes"]["parity"]
        lengths = tuple(found[name]["impossible_from"] for name in routes)
        assert lengths == published[share]

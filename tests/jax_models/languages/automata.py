"""Automata as files hold them."""

ROWS = {"even": {"0": "even", "1": "odd"}, "odd": {"0": "odd", "1": "even"}}
PARITY = {
    "alphabet": ["0", "1"],
    "start": "even",
    "accepting": ["even"],
    "transitions": ROWS,
}
# (ab)*, with a state that accepts nothing.
AB = {
    "alphabet": ["a", "b"],
    "start": "s",
    "accepting": ["s"],
    "transitions": {
        "s": {"a": "o", "b": "x"},
        "o": {"a": "x", "b": "s"},
        "x": {"a": "x", "b": "x"},
    },
}
# Tomita 7: 0* 1* 0* 1*, of which few strings are words.
TOMITA7 = {
    "alphabet": ["0", "1"],
    "start": "A",
    "accepting": ["A", "B", "C", "D"],
    "transitions": {
        "A": {"0": "A", "1": "B"},
        "B": {"0": "C", "1": "B"},
        "C": {"0": "C", "1": "D"},
        "D": {"0": "E", "1": "D"},
        "E": {"0": "E", "1": "E"},
    },
}

"""Parameters for PARITY and DYCK that were searched at length, as rationals.

Each row is a proof, which `switching_proof` and `dyck_threshold` recompute exactly; nothing
rests on how it was found (`benchmarks.depth_search`). A line names L and H; then p_l and
t_l of each step, for DYCK with the spread c_l, which may be none; then for DYCK the risk δ.
"""

from fractions import Fraction

from bounds.restriction.closed_form.switching_lemma import SwitchingStep

Shape = tuple[int, int]
Steps = tuple[SwitchingStep, ...]
Spreads = tuple[Fraction | None, ...]

_PARITY = """
2 1: 141/400 5
2 2: 111/400 8
2 3: 13/50 11
2 4: 19/80 13
2 5: 89/400 15
2 6: 43/200 17
2 7: 21/100 19
2 8: 83/400 21
2 12: 3/16 27
2 16: 71/400 33
3 1: 11/50 3, 19/400 9
3 2: 209/1000 6, 39/2000 13
3 3: 43/200 9, 23/1800 17
3 4: 201/1000 11, 107/11000 19
3 5: 39/200 13, 41/5200 21
3 6: 19/100 15, 1/150 23
3 7: 71/400 16, 19/3200 24
3 8: 89/500 18, 19/3600 26
3 12: 67/400 24, 7/1920 31
3 16: 3/20 28, 33/11200 35
4 1: 219/1000 3, 16/375 8, 51/3200 16
4 2: 209/1000 6, 9/500 12, 227/24000 20
4 3: 43/200 9, 41/3600 15, 3/400 24
4 4: 201/1000 11, 12/1375 17, 219/34000 27
4 5: 39/200 13, 37/5200 19, 21/3800 29
4 6: 71/400 14, 37/5600 21, 41/8400 31
4 7: 71/400 16, 7/1280 22, 39/8800 32
4 8: 89/500 18, 11/2250 24, 199/48000 35
5 1: 219/1000 3, 16/375 8, 7/500 14, 17/2000 22
5 2: 209/1000 6, 9/500 12, 9/1000 19, 233/38000 28
5 4: 201/1000 11, 12/1375 17, 203/34000 25, 43/10000 34
5 8: 89/500 18, 11/2250 24, 47/12000 33, 1/330 43
"""

_DYCK = """
2 1: 173/400 11 none | 1/5
2 2: 139/400 14 none | 1/5
2 3: 3/10 16 none | 1/5
2 4: 93/400 17 3/5 | 1/5
2 5: 89/400 19 3/5 | 1/5
2 6: 43/200 21 3/5 | 1/5
2 7: 21/100 23 3/5 | 1/5
2 8: 41/200 25 3/5 | 1/5
2 12: 3/16 31 3/5 | 1/5
2 16: 71/400 37 3/5 | 1/5
3 1: 13/40 7 none, 73/2800 25 3/25 | 1/12
3 2: 11/40 10 none, 11/800 25 1/20 | 1/12
3 3: 13/50 13 none, 3/325 25 2/25 | 1/12
3 4: 6/25 15 none, 11/1500 27 1/20 | 1/12
3 5: 91/400 17 none, 43/6800 29 1/20 | 1/12
3 6: 87/400 19 none, 39/7600 29 1/20 | 1/12
3 7: 81/400 20 none, 1/200 32 1/20 | 1/12
3 8: 1/5 22 none, 1/220 34 1/20 | 1/12
4 1: 27/80 7 none, 1/56 12 8/5, 19/1600 28 1/20 | 1/24
4 2: 7/25 10 none, 9/800 16 6/5, 47/6400 28 1/20 | 1/24
4 4: 97/400 15 none, 41/6000 21 6/5, 3/560 35 1/20 | 1/24
4 8: 81/400 22 none, 37/8800 28 6/5, 3/800 45 3/100 | 1/24
"""


def _shape(line: str) -> tuple[Shape, list[list[str]]]:
    """Reads L and H, and of each step its words."""
    shape, steps = line.split(": ")
    layers, heads = shape.split()
    return (int(layers), int(heads)), [step.split() for step in steps.split(", ")]


def _parity(line: str) -> tuple[Shape, Steps]:
    shape, steps = _shape(line)
    return shape, tuple(SwitchingStep(Fraction(p), int(t)) for p, t in steps)


def _dyck(line: str) -> tuple[Shape, tuple[Steps, Spreads, Fraction]]:
    rest, risk = line.split(" | ")
    shape, steps = _shape(rest)
    spreads = tuple(None if c == "none" else Fraction(c) for _, _, c in steps)
    found = tuple(SwitchingStep(Fraction(p), int(t)) for p, t, _ in steps)
    return shape, (found, spreads, Fraction(risk))


RELEASED = dict(map(_parity, _PARITY.split("\n")[1:-1]))
DYCK_RELEASED = dict(map(_dyck, _DYCK.split("\n")[1:-1]))

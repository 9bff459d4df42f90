"""Parameters of Theorem 8 that were searched at length, as rationals.

For L layers and H heads. Each row is a proof, which `switching_proof` recomputes in
exact arithmetic; nothing rests on how it was found (`search_steps` with p t in steps of
1/400 and of 1/2000, the better of the two).
"""

from fractions import Fraction

from bounds.closed_form.depth.steps import Step

RELEASED: dict[tuple[int, int], tuple[Step, ...]] = {
    (2, 1): (Step(Fraction(141, 400), 5),),
    (2, 2): (Step(Fraction(111, 400), 8),),
    (2, 4): (Step(Fraction(19, 80), 13),),
    (2, 8): (Step(Fraction(83, 400), 21),),
    (3, 1): (
        Step(Fraction(11, 50), 3),
        Step(Fraction(19, 400), 9),
    ),
    (3, 2): (
        Step(Fraction(209, 1000), 6),
        Step(Fraction(39, 2000), 13),
    ),
    (3, 4): (
        Step(Fraction(201, 1000), 11),
        Step(Fraction(107, 11000), 19),
    ),
    (3, 8): (
        Step(Fraction(89, 500), 18),
        Step(Fraction(19, 3600), 26),
    ),
    (4, 1): (
        Step(Fraction(219, 1000), 3),
        Step(Fraction(16, 375), 8),
        Step(Fraction(51, 3200), 16),
    ),
    (4, 2): (
        Step(Fraction(209, 1000), 6),
        Step(Fraction(9, 500), 12),
        Step(Fraction(227, 24000), 20),
    ),
    (4, 4): (
        Step(Fraction(201, 1000), 11),
        Step(Fraction(12, 1375), 17),
        Step(Fraction(219, 34000), 27),
    ),
    (4, 8): (
        Step(Fraction(89, 500), 18),
        Step(Fraction(11, 2250), 24),
        Step(Fraction(199, 48000), 35),
    ),
    (5, 1): (
        Step(Fraction(219, 1000), 3),
        Step(Fraction(16, 375), 8),
        Step(Fraction(7, 500), 14),
        Step(Fraction(17, 2000), 22),
    ),
    (5, 2): (
        Step(Fraction(209, 1000), 6),
        Step(Fraction(9, 500), 12),
        Step(Fraction(9, 1000), 19),
        Step(Fraction(233, 38000), 28),
    ),
    (5, 4): (
        Step(Fraction(201, 1000), 11),
        Step(Fraction(12, 1375), 17),
        Step(Fraction(203, 34000), 25),
        Step(Fraction(43, 10000), 34),
    ),
    (5, 8): (
        Step(Fraction(89, 500), 18),
        Step(Fraction(11, 2250), 24),
        Step(Fraction(47, 12000), 33),
        Step(Fraction(1, 330), 43),
    ),
}

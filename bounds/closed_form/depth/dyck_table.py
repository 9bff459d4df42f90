"""Parameters for DYCK that were searched at length, as rationals.

For L layers and H heads: the steps, the spreads and δ. Each row is a proof, which
`dyck_threshold` recomputes; nothing rests on how it was found.
"""

from fractions import Fraction

from bounds.closed_form.depth.steps import Step

Row = tuple[tuple[Step, ...], tuple[Fraction | None, ...], Fraction]

DYCK_RELEASED: dict[tuple[int, int], Row] = {
    (2, 1): (
        (Step(Fraction(173, 400), 11),),
        (None,),
        Fraction(1, 5),
    ),
    (2, 2): (
        (Step(Fraction(139, 400), 14),),
        (None,),
        Fraction(1, 5),
    ),
    (2, 4): (
        (Step(Fraction(93, 400), 17),),
        (Fraction(3, 5),),
        Fraction(1, 5),
    ),
    (2, 8): (
        (Step(Fraction(41, 200), 25),),
        (Fraction(3, 5),),
        Fraction(1, 5),
    ),
    (3, 1): (
        (
            Step(Fraction(13, 40), 7),
            Step(Fraction(73, 2800), 25),
        ),
        (
            None,
            Fraction(3, 25),
        ),
        Fraction(1, 12),
    ),
    (3, 2): (
        (
            Step(Fraction(11, 40), 10),
            Step(Fraction(11, 800), 25),
        ),
        (
            None,
            Fraction(1, 20),
        ),
        Fraction(1, 12),
    ),
    (3, 4): (
        (
            Step(Fraction(6, 25), 15),
            Step(Fraction(11, 1500), 27),
        ),
        (
            None,
            Fraction(1, 20),
        ),
        Fraction(1, 12),
    ),
    (3, 8): (
        (
            Step(Fraction(1, 5), 22),
            Step(Fraction(1, 220), 34),
        ),
        (
            None,
            Fraction(1, 20),
        ),
        Fraction(1, 12),
    ),
    (4, 1): (
        (
            Step(Fraction(27, 80), 7),
            Step(Fraction(1, 56), 12),
            Step(Fraction(19, 1600), 28),
        ),
        (
            None,
            Fraction(8, 5),
            Fraction(1, 20),
        ),
        Fraction(1, 24),
    ),
    (4, 2): (
        (
            Step(Fraction(7, 25), 10),
            Step(Fraction(9, 800), 16),
            Step(Fraction(47, 6400), 28),
        ),
        (
            None,
            Fraction(6, 5),
            Fraction(1, 20),
        ),
        Fraction(1, 24),
    ),
    (4, 4): (
        (
            Step(Fraction(97, 400), 15),
            Step(Fraction(41, 6000), 21),
            Step(Fraction(3, 560), 35),
        ),
        (
            None,
            Fraction(6, 5),
            Fraction(1, 20),
        ),
        Fraction(1, 24),
    ),
    (4, 8): (
        (
            Step(Fraction(81, 400), 22),
            Step(Fraction(37, 8800), 28),
            Step(Fraction(3, 800), 45),
        ),
        (
            None,
            Fraction(6, 5),
            Fraction(3, 100),
        ),
        Fraction(1, 24),
    ),
}

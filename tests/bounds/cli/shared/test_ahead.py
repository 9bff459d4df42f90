"""What is left of a sweep is told from its first two steps on, and exactly at its end."""

import pytest

from bounds.cli.shared.progress import Ahead, Program


def seconds(program, is_first):
    """A machine on which compiling takes 3 s, and a run its size in milliseconds."""
    return program.size / 1000 + 3 * is_first


@pytest.mark.parametrize("inputs", [1, 5])
def test_programs_that_take_alike_are_foretold_from_the_first(inputs):
    programs = [Program("softmax", n) for n in (10, 20, 40) for _ in range(inputs)]
    ahead, met = Ahead(programs), set()
    for done, program in enumerate(programs):
        if done < 2:
            assert ahead.seconds() is None
        ahead.took(seconds(program, program not in met))
        met.add(program)
        rest = programs[done + 1 :]
        left = sum(
            seconds(one, one not in met and one not in rest[:k])
            for k, one in enumerate(rest)
        )
        if done:
            assert ahead.seconds() == pytest.approx(left, rel=0.01)


def test_a_family_that_was_not_met_is_taken_for_the_others():
    programs = [Program("one", 10)] * 3 + [Program("other", 10)] * 2
    ahead = Ahead(programs)
    for taken in (2.0, 0.5, 0.5):
        ahead.took(taken)
    assert ahead.seconds() == pytest.approx(2.5)

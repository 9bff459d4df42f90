"""Alphabets: different names that are not empty, from text or in a sequence."""

import pytest

from jax_models.arguments import check_alphabet, read_alphabet
from jax_models.errors import InputError
from jax_models.programs.rasp import check_program


def test_text_names_characters_or_words_with_commas():
    assert read_alphabet("ab(") == ("a", "b", "(")
    assert read_alphabet("open, close") == ("open", "close")


@pytest.mark.parametrize(
    ("alphabet", "complaint"),
    [("", "is empty"), (["a", ""], "symbol 1"), (["a", 3], "3"), ("aba", "'a' twice")],
)
def test_what_is_no_alphabet_is_refused_by_formulas_and_programs(alphabet, complaint):
    with pytest.raises(InputError, match=complaint):
        check_alphabet(alphabet)
    with pytest.raises(InputError, match=complaint):
        check_program("return in", alphabet)

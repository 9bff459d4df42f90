import pytest

from jax_models.languages import read_text
from tests.bounds.influence.expect import refused


@pytest.fixture
def write(tmp_path):
    def write(content):
        path = tmp_path / "input.txt"
        path.write_bytes(content)
        return path

    return write


@pytest.mark.parametrize("newline", [b"", b"\n", b"\r\n"])
def test_bytes_are_ids_and_one_final_newline_is_dropped(write, newline):
    tokens = read_text(write(b"a\xff\x00\nb\n" + newline))
    assert tokens.tolist() == [97, 255, 0, 10, 98] + [10] * (newline != b"")
    assert tokens.dtype == "int32"


def test_a_byte_order_mark_is_no_character_but_three_bytes(write):
    path = write(b"\xef\xbb\xbfba\n")
    assert read_text(path, "ab").tolist() == [1, 0]
    assert read_text(path).tolist() == [0xEF, 0xBB, 0xBF, 98, 97]


def test_a_vocabulary_gives_its_own_ids(write):
    path = write("b(é\na\n".encode())
    assert read_text(path, ["a", "b", "(", "é", "\n"]).tolist() == [1, 2, 3, 4, 0]


@pytest.mark.parametrize(
    ("content", "vocabulary", "message"),
    [
        (b"ab\nbxa\n", "ab\n", r"'x' at position 4 \(line 2, column 2\) is not in"),
        (b"x", "ab", r"'x' at position 0 \(line 1, column 1\) .* vocabulary 'a' 'b'"),
        (b"a\xffb", "ab", "not UTF-8: byte 0xff at offset 1"),
        (b"", None, "is empty: n = 0"),
        (b"a", ["a", "END"], "entry 1 is 'END'"),
        (b"a", ["a", "a"], "2 entries of which 1 differ"),
    ],
)
def test_what_cannot_be_read_is_refused(write, content, vocabulary, message):
    with refused(message):
        read_text(write(content), vocabulary)


def test_missing_files_and_directories_are_refused(tmp_path):
    with refused(r"missing\.txt' does not exist"):
        read_text(tmp_path / "missing.txt")
    with refused("is a folder"):
        read_text(tmp_path)

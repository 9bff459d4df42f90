"""Texts become the tokens that a checkpoint means; what is special is known."""

import json
import sys

import pytest
import tokenizers

import jax_models as jm
from tests.bounds.influence.expect import refused

LETTERS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"ACDE"]
ESM = ["<cls>", "<pad>", "<eos>", "<unk>", *"LAGV.-", "<null_1>", "<mask>"]
IGLM = [*LETTERS, "[HEAVY]", "[CAMEL]", "[ANS-1]"]
PIECES = [*LETTERS[:5], "a", "ab", "##c", "B", ",", "b"]


def folder_of(place, entries=None, **files):
    if entries is not None:
        (place / "vocab.txt").write_text("\n".join(entries), encoding="utf-8")
    for name, held in files.items():
        (place / f"{name}.json").write_text(json.dumps(held))
    return place


def whole(**changed):
    """A small `tokenizer.json`: words, between <s> and </s>, cut and padded."""
    words, ends = {"<s>": 0, "</s>": 1, "the": 2, "cat": 3, "?": 4}, ["<s>", "</s>"]
    core = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, "?"))
    core.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    core.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[(name, words[name]) for name in ends]
    )
    core.add_special_tokens(ends)
    core.enable_truncation(3)
    core.enable_padding(length=9, pad_id=1, pad_token="</s>")
    return json.loads(core.to_str()) | changed


@pytest.mark.parametrize("text", ["ACE", "A C E", " A\nCE "])
def test_letters_stand_between_the_ends_with_or_without_spaces(text, tmp_path):
    found = jm.read_tokenizer(folder_of(tmp_path, LETTERS))
    assert found.encode(text).tolist() == [2, 5, 6, 8, 3]
    assert found.names == tuple(LETTERS)
    assert found.special == (0, 1, 2, 3, 4)
    assert found.encode("A[MASK]E").tolist() == [2, 5, 4, 8, 3]
    assert found.encode("AxE", allow_unknown=True).tolist() == [2, 5, 1, 8, 3]


def test_the_ends_are_what_stands_around_every_text(tmp_path):
    entries = {(1, 1): LETTERS, (1, 0): ["<unk>", "<cls>", "A"], (0, 0): ["<unk>", "A"]}
    for ends, listed in entries.items():
        found = jm.read_tokenizer(folder_of(tmp_path, listed))
        assert found.ends == ends
    # [SEP] at the end of a text is of the text.
    found = jm.read_tokenizer(folder_of(tmp_path, LETTERS))
    assert found.encode("A[SEP]").tolist() == [2, 5, 3, 3]


def test_esm_spells_its_special_symbols_otherwise(tmp_path):
    found = jm.read_tokenizer(folder_of(tmp_path, ESM) / "vocab.txt")
    assert found.encode("LA<mask>G-").tolist() == [0, 4, 5, 11, 6, 9, 2]
    assert found.special == (0, 1, 2, 3, 10, 11)  # <null_1> is no letter
    assert (found.symbol("V"), found.unknown) == (7, 3)


def test_bracketed_names_of_any_kind_are_special_beside_letters_alone(tmp_path):
    found = jm.read_tokenizer(folder_of(tmp_path, IGLM))
    tokens = [2, 9, 10, 5, 6, 8, 11, 3]
    assert found.encode("[HEAVY][CAMEL] ACE [ANS-1]").tolist() == tokens
    assert found.special == (0, 1, 2, 3, 4, 9, 10, 11)
    pieces = jm.read_tokenizer(folder_of(tmp_path, [*PIECES, "[unused1]"]))
    assert pieces.special == (0, 1, 2, 3, 4)
    assert pieces.encode("abc").tolist() == [2, 6, 7, 3]


@pytest.mark.parametrize(
    ("lower", "tokens"), [(None, [2, 6, 7, 9, 10, 3]), (False, [2, 1, 9, 8, 3])]
)
def test_pieces_of_words_are_of_the_case_that_is_said(lower, tokens, tmp_path):
    said = {} if lower is None else {"tokenizer_config": {"do_lower_case": lower}}
    found = jm.read_tokenizer(folder_of(tmp_path, PIECES, **said))
    assert found.encode("ABc,B", allow_unknown=True).tolist() == tokens
    if tokens.count(1):
        with pytest.warns(match="1 words that .* read as .UNK."):
            assert found.encode("ABc,B").tolist() == tokens


def test_a_whole_tokenizer_is_neither_cut_nor_padded_and_goes_first(tmp_path):
    found = jm.read_tokenizer(folder_of(tmp_path, LETTERS, tokenizer=whole()))
    assert found.encode("the cat the the").tolist() == [0, 2, 3, 2, 2, 1]
    assert (found.special, found.unknown) == ((0, 1), 4)
    with pytest.warns(match="text: 2 words that the vocabulary lacks, read as ?"):
        assert found.encode("the dog cow").tolist() == [0, 2, 4, 4, 1]
    with refused("'d' at place 5 is not in the vocabulary"):
        found.encode("the dog", allow_unknown=False)
    assert found.names[2:4] == ("the", "cat")


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("own", ["none", "letters"])
def test_sentences_are_lowered_where_that_is_said_and_never_cut(own, lower, tmp_path):
    said = {"max_seq_length": 3, "do_lower_case": lower}
    stated = whole(normalizer=None if own == "none" else {"type": "NFC"})
    folder_of(tmp_path, tokenizer=stated, sentence_bert_config=said)
    found = jm.read_tokenizer(tmp_path)
    tokens = found.encode("The cat the <s> CAT", allow_unknown=True).tolist()
    assert tokens == ([0, 2, 3, 2, 0, 3, 1] if lower else [0, 4, 3, 2, 0, 4, 1])


def test_what_the_configuration_names_is_special_too(tmp_path):
    named = {
        "mask_token": {"content": "cat"},
        "add_bos_token": True,
        "pad_token": "dog",
    }
    listed = {"additional_special_tokens": ["the"]}
    said = {"tokenizer_config": named, "special_tokens_map": listed}
    folder = folder_of(tmp_path, tokenizer=whole(), **said)
    assert jm.read_tokenizer(folder).special == (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("A C\nx", "'x' at place 5 is not in the vocabulary: A C D E$"),
        ("A[unk]C", r"'\[' at place 2"),
        (" \n", "has no tokens"),
        ("A\ud800", "not UTF-8"),
        (3, "text = 3; expected a string"),
    ],
)
def test_what_is_no_text_of_letters_is_refused(text, message, tmp_path):
    found = jm.read_tokenizer(folder_of(tmp_path, LETTERS))
    for allowed in (None, False):
        with refused(message):
            found.encode(text, allow_unknown=allowed)
    assert found.encode("AC[MASK]", allow_unknown=False).size == 5


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([*LETTERS, "A"], "10 lines, 9 of them different"),
        (["A", "C"], r"with \[UNK\] or <unk>"),
        ([], "0 lines, 0 of them"),
        ([*ESM, "AAA"], "neither of single letters nor of BERT's pieces"),
    ],
)
def test_a_vocabulary_that_says_nothing_of_splitting_is_refused(
    entries, message, tmp_path
):
    with refused(message):
        jm.read_tokenizer(folder_of(tmp_path, entries))


def test_a_broken_folder_is_a_line(tmp_path):
    with refused(r"neither tokenizer\.json nor vocab\.txt"):
        jm.read_tokenizer(tmp_path)
    with refused("none' does not exist"):
        jm.read_tokenizer(tmp_path / "none")
    (tmp_path / "vocab.txt").write_bytes(b"\xff\n")
    with refused("is not UTF-8"):
        jm.read_tokenizer(tmp_path)
    folder_of(tmp_path, tokenizer={"version": "1.0"})
    with refused("is no tokenizer: "):
        jm.read_tokenizer(tmp_path)
    folder_of(tmp_path, tokenizer=whole(), tokenizer_config=[1])
    with refused("expected an object"):
        jm.read_tokenizer(tmp_path)


def test_without_the_package_a_line_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with refused(r"install .* 'attention-bounds\[texts\]'"):
        jm.read_tokenizer(folder_of(tmp_path, LETTERS))

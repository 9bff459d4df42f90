"""Which form something has is asked in its own file, and docstrings are plain."""

import ast
import re
from pathlib import Path

import pytest

from jax_models.model.rows import ACTIVATIONS

ROOT = Path(__file__).resolve().parents[1]


def modules(*homes):
    """Yields the modules of the packages that are not of a form's home, parsed."""
    for package in ("jax_models", "bounds"):
        for path in sorted((ROOT / package).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith(homes):
                yield name, ast.parse(path.read_text())


def found_in(find, *homes):
    """Returns what is found in modules that are not of a form's home, by their names."""
    return {name: words for name, tree in modules(*homes) if (words := find(tree))}


def compared(tree, names):
    """Returns the names that a module compares something with."""
    sides = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides += [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            sides.append(node.value)
    parts = [part for side in sides for part in ast.walk(side)]
    return sorted({x.value for x in parts if isinstance(x, ast.Constant)} & set(names))


def scores_compared(tree):
    return compared(tree, ("additive", "dot_product", "scaled_dot_product"))


def test_scores_are_compared_by_name_nowhere():
    assert found_in(scores_compared, "jax_models/model/scores/") == {}


WEIGHTINGS = ("softmax", "leftmost_hard", "rightmost_hard", "average_hard")
FINALS = ("Softmax", "LeftmostHardmax", "RightmostHardmax", "AverageHardmax")


def told_apart(tree):
    """Returns the classes that a module tests something for, by isinstance or match."""
    parts = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
            parts += ast.walk(node.args[1])
        elif isinstance(node, ast.MatchClass):
            parts.append(node.cls)
    names = {getattr(part, "id", getattr(part, "attr", "")) for part in parts}
    return sorted(names & {*FINALS, *(f"{name}Summary" for name in FINALS)})


def test_weightings_are_told_apart_by_what_they_say_of_themselves():
    find = lambda tree: told_apart(tree) + compared(tree, WEIGHTINGS)
    assert found_in(find, "jax_models/weighting/") == {}


# The closed forms import no models, the meaning of a program is written apart from them.
OTHER_MASKS = ("bounds/lemma5/closed_form/", "jax_models/programs/rasp/")


MASK_WORDS = ("future", "past", "strict_future", "strict_past")


def masks_compared(tree):
    """Returns the masks that a module compares something with, `none` with a mask."""
    return compared(tree, MASK_WORDS) + [
        word
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare) and "mask" in ast.unparse(node.left)
        for word in compared(node, ("none",))
    ]


def test_masks_are_compared_by_name_nowhere():
    assert found_in(masks_compared, "jax_models/model/mask.py", *OTHER_MASKS) == {}


# The format writes and reads the words, the initialiser makes layers of them, and the
# checker of restrictions has its own reading of a layer, on purpose.
PLACES = (
    "jax_models/format/",
    "jax_models/model/layer.py",
    "jax_models/model/rows/",
    "jax_models/model/initialise.py",
    "bounds/restriction/checker.py",
    "bounds/restriction/checking/",
)


def places_compared(tree):
    """Returns what a module asks of where norms stand, of `combine` or an activation."""
    sides = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides += [node.left, *node.comparators]
        elif isinstance(node, ast.Match):
            sides.append(node.subject)
    parts = [part for side in sides for part in ast.walk(side)]
    names = {x.attr for x in parts if isinstance(x, ast.Attribute)}
    return sorted(names & {"combine", "layer_norm"}) + compared(tree, ACTIVATIONS)


def test_where_norms_stand_is_asked_of_programs():
    assert found_in(places_compared, *PLACES) == {}


@pytest.mark.parametrize(
    ("find", "line", "found"),
    [
        (masks_compared, "x.mask == 'none'", "none"),
        (masks_compared, "mask in ('other', 'none')", "none"),
        (masks_compared, "x == 'past'", "past"),
        (told_apart, "isinstance(x, jm.Softmax | int)", "Softmax"),
        (told_apart, "isinstance(x, (Softmax, int))", "Softmax"),
        (scores_compared, "score == 'additive'", "additive"),
        (scores_compared, "x if 'a' not in ('b', 'additive') else y", "additive"),
        (places_compared, "layer.combine == 'concat'", "combine"),
        (places_compared, "if 'pre' in (layer.layer_norm,): pass", "layer_norm"),
        (
            places_compared,
            "match layer.layer_norm:\n    case 'pre': pass",
            "layer_norm",
        ),
        (places_compared, "block.activation != 'relu'", "relu"),
        (places_compared, "match block.activation:\n    case 'gelu': pass", "gelu"),
    ],
)
def test_a_planted_comparison_is_found(find, line, found):
    assert find(ast.parse(line)) == [found]


OPENING = re.compile(
    r"(?:Returns |Yields |Whether )?(?:what|how|which|those|that of|the same)\b", re.I
)
VAGUE = re.compile(r"\b(?:likewise|of it|about it|besides)\b", re.I)


def vague_docstrings(tree):
    """Yields the names whose docstring has no noun or verb first, or no referent."""
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.walk(tree):
        text = ast.get_docstring(node) if isinstance(node, kinds) else None
        if text and (OPENING.match(text) or VAGUE.search(" ".join(text.split()))):
            yield getattr(node, "name", "the module")


def test_docstrings_begin_with_a_noun_or_verb_and_name_what_they_are_about():
    assert found_in(lambda tree: list(vague_docstrings(tree))) == {}


@pytest.mark.parametrize(
    ("text", "vague"),
    [
        ("Returns what norms leave of a change.", True),
        ("How many rows a block has.", True),
        ("Which keys a row sees.", True),
        ("Number of keys;\n    of\n    it the largest.", True),
        ("The keys. Args: values: likewise.", True),
        ("Number of keys that a row sees.", False),
        ("Returns the summary of a tile.", False),
    ],
)
def test_a_vague_docstring_is_found(text, vague):
    tree = ast.parse(f'def f():\n    """{text}"""')
    assert list(vague_docstrings(tree)) == ["f"] * vague


SHAPED = {"Float", "Int", "Bool", "UInt", "UInt8", "Key", "Shaped"}


def bare_arrays(annotation):
    """Yields the arrays of an annotation that have no shape; functions are passed by."""
    of = getattr(annotation, "value", None)
    name = getattr(of, "id", getattr(of, "attr", ""))
    if isinstance(annotation, ast.Subscript) and name in {*SHAPED, "Callable"}:
        return
    if ast.unparse(annotation) in ("Array", "jax.Array", "np.ndarray"):
        yield annotation
    for part in ast.iter_child_nodes(annotation):
        yield from bare_arrays(part)


def arrays_without_shape(tree):
    """Yields the functions in whose signature an array has no shape."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            a = node.args
            every = [*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg]
            hints = [one.annotation for one in every if one] + [node.returns]
            if any(list(bare_arrays(hint)) for hint in hints if hint):
                yield node.name


def test_arrays_in_signatures_have_shapes():
    found = {name: list(arrays_without_shape(tree)) for name, tree in modules()}
    assert not {name: names for name, names in found.items() if names}


@pytest.mark.parametrize(
    ("signature", "bare"),
    [
        ("x: Array", True),
        ("*x: np.ndarray", True),
        ("x: tuple[int, jax.Array | None]", True),
        ('x: Float[Array, "rows"]', False),
        ("x: Callable[[Array], Array]", False),
    ],
)
def test_an_array_without_a_shape_is_found(signature, bare):
    assert list(arrays_without_shape(ast.parse(f"def f({signature}): ..."))) == (
        ["f"] * bare
    )

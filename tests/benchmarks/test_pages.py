"""Pages made from stored rows: what stands there is what the rows make."""

import json
import re
import shutil

import pytest

from benchmarks import pages, quick, scaling
from benchmarks.docs_check.agreement import image_difference
from benchmarks.script import read_lines, results_files, rows_of, write_lines
from bounds.figures.primitives import save_figure
from tests.bounds.influence.expect import refused


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """A copy of the pages and of the stored rows, which the program works on."""
    shutil.copytree(pages.DOCS, tmp_path / "docs")
    shutil.copy(pages.DOCS.parent / "README.md", tmp_path)
    shutil.copytree(pages.FOLDER, tmp_path / "results")
    monkeypatch.setattr(pages, "DOCS", tmp_path / "docs")
    monkeypatch.setattr(pages, "FOLDER", tmp_path / "results")
    monkeypatch.setattr(pages, "draw_figures", lambda *_: [])
    return tmp_path


def test_the_pages_are_what_the_stored_rows_make():
    """Run `python -m benchmarks.pages` where this fails."""
    for page in pages.pages_with_blocks():
        assert pages.is_current(page), page


def test_a_page_does_not_depend_on_the_last_bits_of_a_fit(monkeypatch):
    """Libraries differ in them by the processor: an exponent of 0 is 1e-17 or -1e-17."""
    fitted, texts, slopes = scaling.fit_exponent, set(), []
    for way in (-1, 0, 1):

        def moved(sizes, values, way=way):
            fit = fitted(sizes, values)
            slopes.append(fit.slope + way * 1e-15)
            return scaling.Fit(slopes[-1], fit.error, fit.last + way * 1e-15)

        monkeypatch.setattr(scaling, "fit_exponent", moved)
        texts.add(pages.block_text("scaling"))
    assert len(texts) == 1
    assert any(-1e-12 < slope < 0 for slope in slopes)


@pytest.mark.parametrize("page", pages.pages_with_blocks(), ids=lambda page: page.name)
def test_no_page_of_stored_rows_has_a_negative_zero(page):
    assert not re.search(r"(?<![\w.])-0(\.0*)?(?![\d.])", pages.page_text(page))


def test_a_block_may_differ_in_the_last_digit_of_a_decimal_number_alone(copied):
    page = copied / "docs" / "benchmarks.md"
    text = page.read_text()
    (exponent, *_) = re.findall(r"\| (\d\.\d\d) ± ", text)
    for units, current in ((1, True), (-1, True), (2, False), (-2, False)):
        other = f"| {float(exponent) + units / 100:.2f} ± "
        page.write_text(text.replace(f"| {exponent} ± ", other, 1))
        assert pages.is_current(page) == current, other


def test_every_figure_of_a_page_is_there_and_no_other():
    shown = {
        target
        for page in pages.pages_with_blocks()
        for target in page.read_text().split("](benchmarks/")[1:]
    }
    names = {target.partition(")")[0] for target in shown}
    assert names == {path.name for path in (pages.DOCS / "benchmarks").iterdir()}


def test_every_quick_script_has_its_place_on_the_page():
    text = (pages.DOCS / "benchmarks.md").read_text()
    places = [match[2] for match in pages.BLOCK.finditer(text) if match[3] is None]
    assert sorted(places) == sorted(quick.scripts())


@pytest.mark.parametrize(
    "change",
    [
        lambda line: line["row"].update(incremental_seconds=0.5),
        lambda line: line["versions"].update(jax="0.0.1"),
    ],
    ids=["seconds", "version"],
)
def test_a_changed_row_makes_the_page_stale_until_it_is_made_anew(copied, change):
    page = copied / "docs" / "benchmarks.md"
    lines = read_lines(rows := copied / "results" / "nvidia-h200.jsonl")
    change(lines[0])
    write_lines(rows, lines)
    assert any("benchmarks.md" in line for line in pages.stale())
    before = page.read_text()
    page.write_text(pages.page_text(page))
    assert page.read_text() != before
    assert not any("benchmarks.md" in line for line in pages.stale())


def test_a_point_that_has_moved_makes_its_figure_stale(tmp_path):
    name, lines = "forward_pass", read_lines(pages.FOLDER / "amd-epyc-2-cores.jsonl")
    measured = rows_of(lines, name)
    draw = pages.benchmark_of(name).draw
    assert draw is not None
    (stated,) = save_figure(draw(measured), tmp_path / "stated", ["png"])
    (again,) = save_figure(draw(measured), tmp_path / "again", ["png"])
    assert image_difference(stated, again) is None
    (config, row), *others = measured
    row = {**row, "forward_seconds": 1.5 * row["forward_seconds"]}
    (moved,) = save_figure(draw([(config, row), *others]), tmp_path / "moved", ["png"])
    assert "percent" in str(image_difference(stated, moved))


def test_a_number_in_a_sentence_follows_its_row(copied):
    readme = copied / "README.md"
    before = readme.read_text()
    assert not any("README" in line for line in pages.stale())
    readme.write_text(before.replace("take 9.6 s", "take 9.7 s"))
    assert any("README" in line for line in pages.stale())
    readme.write_text(pages.page_text(readme))
    assert readme.read_text() == before


SPEED = "influence_speed on nvidia-h200"


@pytest.mark.parametrize(
    ("before", "mark", "complaint"),
    [
        ("It is ", f"{SPEED}, speedup, n=17", "0 rows"),
        ("It is ", f"{SPEED}, speedup, n=1024", "4 rows"),
        ("It is ", f"{SPEED}, size, n=1024 layers=1 dtype=float32", "'size'"),
        ("", f"{SPEED}, speedup, n=4096 layers=2 dtype=float64", "begins a line"),
        ("A line.\n", f"{SPEED}, speedup, n=17", "begins a line"),
    ],
)
def test_a_mark_of_no_number_or_at_the_begin_of_a_line_is_refused(
    before, mark, complaint
):
    with refused(complaint):
        pages.fill_values(f"{before}<!-- value: {mark} -->1<!-- end of value -->")


def test_a_number_has_the_digits_asked_for():
    mark = (
        "<!-- value: influence_speed on nvidia-h200, speedup,\n"
        "    n=4096 layers=2 dtype=float64 digits=3 -->"
    )
    text = f"It is {mark}0<!-- end of value --> times as fast."
    assert pages.fill_values(text) == text.replace("-->0<!", "-->98.3<!")


def test_one_device_is_shown_where_it_is_named():
    text = pages.block_text("influence_speed", "nvidia-h200")
    assert "NVIDIA H200" in text
    assert "EPYC" not in text
    assert text in pages.block_text("influence_speed")


def test_rows_of_longer_runs_stand_where_they_are_named_and_nowhere_else(copied):
    long = "long/amd-epyc-2-cores"
    (config, row), *_ = rows_of(read_lines(pages.FOLDER / f"{long}.jsonl"), "screening")
    result = "open" if row["uncertified"] else "closed"
    shown = f"| {config['n']} | {result} | {row['evaluated']} |"
    assert shown in pages.block_text("screening", long)
    assert shown not in pages.block_text("screening")
    mark = f"<!-- value: screening on {long}, base_passes, n=2048 layers=4 -->"
    assert "0<!--" not in pages.fill_values(f"costs {mark}0<!-- end of value -->")
    with refused("there is no file"):
        pages.block_text("screening", "long/nowhere")


@pytest.mark.parametrize("name", ["no_such_question", "timing", "page"])
def test_a_mark_that_names_no_benchmark_is_refused(name):
    with refused(name):
        pages.block_text(name)


def test_every_stored_row_says_where_and_how_it_was_measured():
    told = {"command", "device", "platform", "dtype", "matmul_precision", "seed"}
    files = [*results_files().values(), *results_files(pages.FOLDER / "long").values()]
    for path in files:
        lines = read_lines(path)
        assert len({line["config"]["device"] for line in lines}) == 1
        for line in lines:
            assert told <= line["config"].keys()
            assert "jax" in line["versions"]
            # What was not measured by this program says where it is from.
            assert line["git_commit"] or line["note"]


@pytest.mark.parametrize("text", ["{", "[]", json.dumps({"config": {}, "row": {}})])
def test_a_line_that_is_no_row_is_refused_with_its_number(tmp_path, text):
    file = tmp_path / "rows.jsonl"
    file.write_text(text + "\n")
    with refused(r"rows\.jsonl:1: "):
        read_lines(file)
    assert read_lines(tmp_path / "none.jsonl") == []

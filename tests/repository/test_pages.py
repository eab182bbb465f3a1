"""The pages show what results and classes say; their commands parse, their links lead somewhere."""

import re
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest

from experiments.__main__ import choose
from mibounds.cli import COMMANDS
from mibounds.cli.commands import Command
from mibounds.cli.program import parse
from pages.fields import FIELD, PAGES, fill
from pages.texts import table

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
NAMES = [page.name for page in PAGES]


# --- numbers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_the_numbers_are_those_of_the_results(page):
    text = page.read_text()
    assert fill(text, page.name) == text, "run make pages"


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_field_is_filled_whatever_it_held(page):
    text = page.read_text()
    empty = FIELD.sub(lambda field: field[0].replace(field[5] + "<!-- end", "0<!-- end"), text)
    assert empty != text or not FIELD.search(text)
    assert fill(empty, page.name) == text


def test_pages_with_numbers_have_fields():
    fields = {page.name: len(FIELD.findall(page.read_text())) for page in PAGES}
    assert {name for name, count in fields.items() if count} == {
        "README.md", "adaptation.md", "bottleneck.md", "choose.md", "dependencies.md", "errata.md",
        "faults.md", "measure.md", "minimise.md", "moving-over.md", "scale.md", "series.md",
        "simulation.md", "tables.md",
    }  # fmt: skip
    assert sum(fields.values()) > 80


@pytest.mark.parametrize(
    "text",
    [
        "It is <!-- classes.exact_club(2):.2f -->4.43",
        "It is <!-- classes.exact_club(2):.2f -->4.43<!-- end --> or 5<!-- end -->",
        "It is <!-- classes.exact_club(2) --><!-- classes.exact_club(2):.2f -->1<!-- end -->",
    ],
)
def test_a_field_that_is_not_closed(text):
    with pytest.raises(ValueError, match=r"^Expected fields .* in a\.md but got .* for . fields;"):
        fill(text, "a.md")


def test_a_field_that_begins_a_line():
    text = "It is\n<!-- classes.exact_club(2):.2f -->4.43<!-- end -->."
    with pytest.raises(ValueError, match=r"^Expected words before .* in a\.md .* move the line"):
        fill(text, "a.md")


def test_a_field_that_nothing_computes():
    with pytest.raises(AttributeError, match="no_such_number"):
        fill("It is <!-- classes.no_such_number() -->1<!-- end -->.")


def test_rows_that_do_not_fit_the_head():
    with pytest.raises(ValueError, match=r"^Expected rows as long as the head but got others;"):
        table(["one", "two"], [["1"]])


def test_the_picture_of_the_readme_is_that_of_the_results(tmp_path):
    pytest.importorskip("matplotlib")
    from pages.overview import PICTURE, draw

    draw(tmp_path / "overview.svg")
    assert (tmp_path / "overview.svg").read_text() == PICTURE.read_text(), "run make pages"


# --- commands, links, figures --------------------------------------------------------------------


def test_every_command_on_the_pages_is_one():
    pytest.importorskip("tyro", reason="the command line needs it")
    text = "\n".join(page.read_text() for page in PAGES)
    for prog, least in (("mibounds", 15), ("python -m experiments", 30)):
        lines = re.findall(rf"^ *({prog} .*)", text, re.MULTILINE)
        lines = [line.split(" #")[0] for line in lines] + re.findall(rf"`({prog} [^`]+)`", text)
        assert len(lines) > least
        for line in lines:
            words = shlex.split(line.replace("$SLURM_ARRAY_TASK_ID", "1"))[len(prog.split()) :]
            if not words or words[-1] in ("--version", "--help", "NAME", "..."):
                continue
            known = (prog, COMMANDS, words) if prog == "mibounds" else choose(words)
            assert isinstance(parse(*known), Command), line


def test_every_script_and_file_on_the_pages_exists():
    text = "\n".join(page.read_text() for page in [*PAGES, ROOT / "CONTRIBUTING.md"])
    files = set(re.findall(r"\b(?:benchmarks|examples|tests|results|docs)/[\w./-]*\w", text))
    assert len(files) > 20
    assert [file for file in sorted(files) if not (ROOT / file).exists()] == []


def test_the_links_of_the_readme_lead_to_a_heading():
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        links = re.findall(r"\]\(([^):]+\.\w+)(?:#([\w-]+))?\)", page.read_text())
        assert len(links) >= 1
        for path, anchor in links:
            assert (ROOT / path).exists(), path
            if anchor:
                headings = re.findall(r"^#+ (.+)", (ROOT / path).read_text(), re.MULTILINE)
                slugs = [re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings]
                assert anchor in slugs


def test_figures_are_there():
    for figure in (ROOT / "docs" / "figures").iterdir():
        assert figure.resolve().is_relative_to(RESULTS)
        assert figure.exists()


# --- what the site adds --------------------------------------------------------------------------


def test_the_architecture_is_drawn_from_the_imports(hook):
    architecture = hook("architecture")
    imports = architecture.find_imports()
    levels = architecture.find_levels(imports)
    assert imports["samples"] == set()
    assert all(levels[other] < levels[name] for name in imports for other in imports[name])
    page = SimpleNamespace(file=SimpleNamespace(src_uri="architecture.md"))
    text = architecture.on_page_markdown("<!-- diagram --> <!-- modules -->", page=page)
    for name in imports.keys() - {"__main__"}:
        assert f">{name}</text>" in text
    rooms = re.findall(r"^- \*\*`([\w.]+)/?`\*\* ", text.partition("</svg> ")[2], re.MULTILINE)
    assert rooms == [
        "samples", "conditionals", "critics", "bounds", "estimators", "measure", "minimise",
        "tasks", "cli", "sklearn", "files.py", "networks.py", "progress.py", "mi_estimators.py",
    ]  # fmt: skip
    assert "\n    - `from_critics.py` Bounds from a critic" in text
    assert "\n    - `classical/` Estimators of mutual information without a network" in text
    other = SimpleNamespace(file=SimpleNamespace(src_uri="index.md"))
    assert architecture.on_page_markdown("<!-- diagram -->", page=other) == "<!-- diagram -->"


def test_formulas_are_set(hook):
    formulas = hook("formulas")
    page = "Put $`\\log u \\le u / a`$ here:\n\n```math\n\\frac{1}{N} \\sum_{i=1}^{N} y_i\n```\n"
    text = formulas.on_page_markdown(page)
    assert text.count("<math") == 2
    assert "<mfrac><mrow><mn>1</mn></mrow><mrow><mi>N</mi></mrow></mfrac>" in text
    assert "$" not in text
    with pytest.raises(ValueError, match="some command in it is unknown"):
        formulas.render(r"\nosuchcommand{x}", "block")


def test_no_page_shows_the_source_of_a_formula(hook):
    formulas = hook("formulas")
    pages = list((ROOT / "docs").rglob("*.md"))
    assert any("```math" in page.read_text() for page in pages)
    for page in pages:
        text = formulas.on_page_markdown(page.read_text())
        assert "```math" not in text, page
        assert "$`" not in text, page


def test_the_site_shows_neither_marks_nor_broken_tables():
    markdown = pytest.importorskip("markdown", reason="comes with the documentation tools")
    for page in PAGES:
        fields = FIELD.findall(page.read_text())
        html = markdown.markdown(page.read_text(), extensions=["tables", "fenced_code"])
        shown = re.sub(r"<!--.*?-->", "", html)
        assert "&lt;!-- " not in shown.replace("&lt;!-- adaptation.seconds", ""), page
        assert html.count("<table>") >= sum("\n" in field[4] for field in fields)

"""The cookbook: its hook on pages made up here, and what its pages promise.

The pages themselves run when the site is built, in `test_site.py`, and assert what they say.
"""

import re
import shlex
from pathlib import Path

import pytest

from mibounds.cli import COMMANDS
from mibounds.cli.commands import Command
from mibounds.cli.program import parse

ROOT = Path(__file__).parents[2]
RECIPES = sorted(path for path in (ROOT / "docs" / "cookbook").glob("*.md") if path.stem != "index")


@pytest.fixture
def cookbook(hook, tmp_path):
    """The hook, with a function that runs a page of this text."""
    module = hook("cookbook")

    def run_text(text):
        page = tmp_path / "page.md"
        page.write_text(text)
        return module.show(text, module.run(page, tmp_path / "kept"))

    module.run_text = run_text
    return module


# --- the hook ------------------------------------------------------------------------------------


def test_outputs_stand_below_their_blocks(cookbook):
    text = cookbook.run_text(
        "# Page\n\n```python run\na = 2\nprint('two', a)\na + 1\n```\n\nThen\n\n"
        "```python run\nb = a\n```\n\n```python\nnot.run(\n```\n\n<!-- check\nassert b == 2\n-->\n"
    )
    assert text == (
        "# Page\n\n```python\na = 2\nprint('two', a)\na + 1\n```\n\n"
        "``` { .text .no-copy .result }\ntwo 2\n3\n```\n\nThen\n\n"
        "```python\nb = a\n```\n\n```python\nnot.run(\n```\n\n\n"
    )


def test_files_and_commands_of_a_page(cookbook):
    text = cookbook.run_text(
        "```python file=four.py\nprint(2 + 2)\n```\n\n```sh run\npython four.py\n```\n\n"
        "```python run\nopen('four.py').read()\n```\n"
    )
    assert '```python title="four.py"\nprint(2 + 2)\n```\n\n```sh\npython four.py\n```' in text
    assert ".result }\n4\n```" in text
    assert ".result }\n'print(2 + 2)\\n'\n```" in text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n```python run\na = 1\n\na / 0\n```\n", ":5: ZeroDivisionError: division by zero"),
        ("```python run\na = (\n```\n", r":2: (?s:.*)SyntaxError"),
        ("```python run\ndef f():\n    raise ValueError('no')\n\nf()\n```\n", ":3: ValueError: no"),
        ("```python run\n1\n```\n\n<!-- check\nassert 1 > 2, 'claim'\n-->\n", ":6: .*: claim"),
        ("```python run\nimport warnings\nwarnings.warn('odd')\n```\n", ":3: UserWarning: odd"),
        ("\n\n```sh run\necho why >&2; false\n```\n", ":4: exit code 1\nwhy"),
    ],
)
def test_what_fails_is_named_with_its_line(cookbook, text, message):
    with pytest.raises(cookbook.Broken, match=rf"page\.md{message}"):
        cookbook.run_text(text)


def test_a_page_runs_again_when_its_code_changes(cookbook, tmp_path):
    count = f"with open({str(tmp_path / 'runs')!r}, 'a') as f:\n    f.write('x')"
    runs = []
    for words, code in (("one", ""), ("other words", ""), ("one", "more = 1\n")):
        cookbook.run_text(f"{words}\n\n```python run\n{count}\n{code}```\n")
        runs.append(len((tmp_path / "runs").read_text()))
    assert runs == [1, 1, 2]
    assert len(list((tmp_path / "kept").iterdir())) == 1


@pytest.mark.parametrize(
    "code",
    [
        "from matplotlib import pyplot\npyplot.plot([1, 2])\npyplot.xlabel('a < b')\nprint(1)",
        "from matplotlib.figure import Figure\na = Figure().subplots()\na.set_xlabel('a < b')\na",
    ],
)
def test_figures_take_the_colour_of_the_page(cookbook, code):
    pytest.importorskip("matplotlib", reason="draws the figures")
    text = cookbook.run_text(f"```python run\n{code}\n```\n\n```python run\n1\n```\n")
    assert text.count('<figure class="drawn"><svg role="img" aria-label="a &lt; b"') == 1
    assert "currentColor" in text
    assert cookbook.INK not in text
    assert "<style" not in text
    assert "Axes" not in text


def test_a_page_that_fails_stops_the_build(cookbook, tmp_path):
    exceptions = pytest.importorskip("mkdocs.exceptions", reason="builds the site")
    page = tmp_path / "page.md"
    page.write_text("```python run\nno_such_name\n```\n")

    class File:
        src_uri, abs_src_path, content_string = "page.md", str(page), page.read_text()

    class Stand:
        file = File
        documentation_pages = staticmethod(lambda: [File])

    cookbook.KEPT = tmp_path
    cookbook.on_files(Stand)
    with pytest.raises(exceptions.PluginError, match=r"page\.md:2: NameError"):
        cookbook.on_page_markdown(page.read_text(), page=Stand)
    assert cookbook.on_page_markdown("else", page=Stand) == "else"


# --- its pages -----------------------------------------------------------------------------------


def test_every_recipe_is_in_the_index_and_in_the_navigation():
    names = {path.name for path in RECIPES}
    assert len(names) == 12
    index = (ROOT / "docs" / "cookbook" / "index.md").read_text()
    assert set(re.findall(r"\]\(([\w-]+\.md)\)", index)) == names
    navigation = (ROOT / "mkdocs.yml").read_text()
    assert set(re.findall(r": cookbook/([\w-]+\.md)$", navigation, re.MULTILINE)) == names


@pytest.mark.parametrize("page", RECIPES, ids=lambda page: page.stem)
def test_a_recipe_answers_one_question(page):
    text = page.read_text()
    title, question = text.split("\n\n")[:2]
    assert re.fullmatch(r"# [^\n]+", title)
    assert re.fullmatch(r"\*\*.+\?\*\*", question, re.DOTALL)
    headings = re.findall(r"^## (.+)", text, re.MULTILINE)
    assert headings[:2] == ["How to read it", "When not to believe it"]
    assert headings[2].startswith("With your own")
    blocks = re.findall(r"^```python [^\n]+\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 1
    for block in blocks:
        lines = [line for line in block.splitlines() if line.strip()]
        assert len(lines) <= 25, block
        assert max(map(len, lines)) <= 100, block


def test_the_commands_of_the_recipes_parse():
    pytest.importorskip("tyro", reason="the command line needs it")
    text = "\n".join(page.read_text() for page in RECIPES)
    commands = re.findall(r"^(mibounds .*)|`(mibounds [^`]+)`", text, re.MULTILINE)
    assert len(commands) >= 10
    for line in map("".join, commands):
        assert isinstance(parse("mibounds", COMMANDS, shlex.split(line)[1:]), Command), line

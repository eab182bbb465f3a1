"""Every message says what to do, and the page lists it."""

import re
from types import SimpleNamespace

import pytest

PAGE = SimpleNamespace(file=SimpleNamespace(src_uri="troubleshooting.md"))

FORMS = """
import warnings

def plain(n, error):
    if n == 1:
        raise ValueError("a constant; do this.")
    if n == 2:
        raise ValueError(f"Expected {n!r:>8} but got {error}; do {n}.")
    if n == 3:
        raise package.Special(
            "Expected parts that are joined but got "
            f"{n}; do "
            "these."
        )
    if n == 4:
        raise TypeError("Expected a sum but got " + str(n) + "; do those.") from error
    if n == 5:
        raise RuntimeError("Expected a remedy but got none.")
    raise ValueError(str(error))

def from_elsewhere(n):
    raise ValueError(_say(n))

def _say(n):
    def inner():
        return 3
    return f"from a function: {n}; call it"

def from_a_name(n):
    text = f"from a name: {n}; name it"
    raise KeyError(text)

class Loud:
    def from_a_list(self):
        said = []
        said.append("from a list; fill it")
        for text in said:
            warnings.warn(text, stacklevel=2)
        warnings.warn(f"at {self}; warned", RuntimeWarning)

expect(n > 0, f"{n} to be positive", n, "raise it")
Advice("short-name", f"{n} is odd.", "Make it even.")
"""


@pytest.fixture(scope="module")
def troubleshooting(hook):
    return hook("troubleshooting")


@pytest.fixture(scope="module")
def messages(troubleshooting):
    both = troubleshooting.SOURCE, troubleshooting.EXPERIMENTS
    return [message for source in both for message in troubleshooting.find_messages(source)]


def find(troubleshooting, folder, text):
    (folder / "part").mkdir(exist_ok=True)
    (folder / "part" / "module.py").write_text(text)
    return troubleshooting.find_messages(folder)


def test_every_message_says_what_to_do(messages):
    assert [m for m in messages if not m.remedy] == []
    assert len(messages) > 300


def test_every_form_is_read(troubleshooting, tmp_path):
    found = find(troubleshooting, tmp_path, FORMS)
    assert {m.path for m in found} == {"part/module.py"}
    lines = FORMS.splitlines()
    assert all(re.search("raise|warn|expect|Advice", lines[m.line - 1]) for m in found)
    assert [(m.kind, m.text, m.remedy) for m in found] == [
        ("ValueError", "a constant", "do this"),
        ("ValueError", "Expected … but got …", "do …"),
        ("Special", "Expected parts that are joined but got …", "do these"),
        ("TypeError", "Expected a sum but got …", "do those"),
        ("RuntimeError", "Expected a remedy but got none.", ""),
        ("ValueError", "from a function: …", "call it"),
        ("KeyError", "from a name: …", "name it"),
        ("warning", "from a list", "fill it"),
        ("warning", "at …", "warned"),
        ("ValueError", "Expected … to be positive but got …", "raise it"),
        ("warning", "short-name: … is odd.", "Make it even"),
    ]


@pytest.mark.parametrize("remedy", ["", ".", "; ", "; {n}", "; {n}{n}."])
def test_what_is_no_remedy(troubleshooting, tmp_path, remedy):
    (found,) = find(troubleshooting, tmp_path, f'raise ValueError(f"It is {{n}}{remedy}")')
    assert found.remedy == ""


@pytest.mark.parametrize("argument", ["text", "made(n)", "table[n]", "'%d' % n"])
def test_a_form_that_is_not_read_is_refused(troubleshooting, tmp_path, argument):
    with pytest.raises(ValueError, match=r"^part/module\.py:2: expected a message in a form"):
        find(troubleshooting, tmp_path, f"def f(text, n):\n    raise ValueError({argument})\n")


def test_none_is_left_out(troubleshooting):
    """Counted by the text of the source, without a look at its syntax."""
    missing = []
    for source in (troubleshooting.SOURCE, troubleshooting.EXPERIMENTS):
        places = {(m.path, m.line) for m in troubleshooting.find_messages(source)}
        for path in sorted(source.rglob("*.py")):
            name = path.relative_to(source).as_posix()
            for number, line in enumerate(path.read_text().splitlines(), 1):
                made = re.match(r"\s*(?:raise (\w+)\(|warnings\.warn\(|expect\()", line)
                if made and made[1] not in troubleshooting.PARTS and (name, number) not in places:
                    missing.append((name, line.strip().split("(", 1)[1]))
    assert missing == [
        ("cli/tables.py", 'f"{file.source}: {_unknown(names, name)}")'),  # with a prefix
        ("estimators/ensembles.py", 'f"Estimator {number}: {error}") from None'),
        ("minimise/penalty.py", "str(advice), PenaltyWarning, stacklevel=2)"),
        ("minimise/penalty.py", "str(advice), PenaltyWarning, stacklevel=6)"),
        ("tasks/base.py", 'f"Expected {expected} but got {got}; {advice}.")'),  # expect itself
        ("__main__.py", "str(error)) from None"),  # another message, as it is
        ("data/commands.py", "str(error)) from error"),
        ("data/folders.py", "f\"{', '.join(paths)}: {error}\") from None"),
        ("data/folders.py", 'f"{path.name}, {split}: {error}") from None'),
        ("runner/records.py", 'f"{where}: {found}") from found'),
        ("runner/states.py", '"tensors of other shapes")'),  # a part of another
    ]


def test_what_is_passed_over_is_there(troubleshooting, monkeypatch):
    prefixes, parts = troubleshooting.PREFIXES, troubleshooting.PARTS
    monkeypatch.setattr(troubleshooting, "PREFIXES", set())
    monkeypatch.setattr(troubleshooting, "PARTS", {"_Broken", "Damaged"})  # not all are strings
    both = troubleshooting.SOURCE, troubleshooting.EXPERIMENTS
    found = {
        word for s in both for m in troubleshooting.find_messages(s) for word in (m.kind, m.text)
    }
    assert prefixes | parts - {"_Broken", "Damaged"} <= found


def test_titles_name_what_there_is(troubleshooting):
    for name in troubleshooting.TITLES:
        path = troubleshooting.SOURCE / name
        assert path.is_dir() or path.with_suffix(".py").is_file(), name


def test_the_page(troubleshooting):
    markdown = pytest.importorskip("markdown")
    text = troubleshooting.on_page_markdown("before\n\n<!-- messages -->\n", page=PAGE)
    assert text.startswith("before\n\n### ")
    assert "\n### Files that are read\n\n| message | kind | what to do |\n" in text
    assert (
        "\n| `Expected a finite learning loss but got … in step …` | FloatingPointError "
        "| lower lr, or look for extreme values in x and y |\n" in text
    )
    page = markdown.markdown(text, extensions=["tables"])
    rows = [re.findall(r"<td>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", page, re.S)]
    rows = [row for row in rows if row]  # without the heads
    assert all(len(row) == 3 for row in rows)
    messages = troubleshooting.find_messages()
    shown = {(m.text, m.kind, m.remedy) for m in messages if re.search(r"\w", m.text)}
    assert len(rows) >= len(shown)
    assert page.count("<h3>") == page.count("<table>") > 20
    assert "q(y|x) predicts a new batch worse" in page
    assert "<td>pass p(y | x), such as Independent(Normal(mean, scale), 1)</td>" in page
    assert "pip install 'mibounds[flows]'" in page
    assert "\\" not in page
    assert not re.search(r"/(home|tmp|work|usr)/", page)


def test_other_pages_stay(troubleshooting):
    other = SimpleNamespace(file=SimpleNamespace(src_uri="index.md"))
    assert troubleshooting.on_page_markdown("<!-- messages -->", page=other) == "<!-- messages -->"

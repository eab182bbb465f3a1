"""The site as it is built: its cookbook runs, pages fit, API pages have every public name."""

import functools
import json
import os
import queue
import re
import shutil
import subprocess
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import mibounds

ROOT = Path(__file__).parents[2]
API = sorted((ROOT / "docs" / "api").glob("*.md"))
BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
WIDTHS = (480, 1280, 1440)
# Loads each page at each width, and looks at it.
MEASURE = """<iframe id="page" height="900"></iframe><script>
const frame = document.getElementById("page"), found = []
async function look(page, width) {
  frame.width = width
  await new Promise(resolve => { frame.onload = resolve; frame.src = page })
  const root = frame.contentDocument, view = root.documentElement.clientWidth
  const article = root.querySelector("article")
  const blocks = [...article.querySelectorAll("pre > code")]
  const drawn = [...article.querySelectorAll("img, figure svg")]
  const reach = each => each.getBoundingClientRect().right
  const long = blocks.filter(each => each.scrollWidth > each.clientWidth)
  const scrolls = each => {
    const style = frame.contentWindow.getComputedStyle(each)
    return style.overflowX == "auto" && !style.scrollbarColor.startsWith("rgba(0, 0, 0, 0)")
  }
  found.push({
    page, width, view, blocks: blocks.length, figures: drawn.length,
    wide: root.documentElement.scrollWidth - view,
    long: long.map(each => each.textContent),
    cut: [...long.filter(each => !scrolls(each)), ...blocks.filter(each => reach(each) > view)]
      .map(each => each.textContent),
    outside: drawn.filter(each => reach(each) > view).length,
    broken: drawn.filter(each => each.naturalWidth === 0).map(each => each.src),
  })
}
(async () => {
  for (const page of PAGES) for (const width of WIDTHS) await look(page, width)
  fetch("/found", { method: "POST", body: JSON.stringify(found) })
})().catch(error => fetch("/found", { method: "POST", body: JSON.stringify(String(error)) }))
</script>"""


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The folder of the site, built once for all processes of the tests."""
    pytest.importorskip("material", reason="the documentation tools build the site")
    filelock = pytest.importorskip("filelock")
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared
    with filelock.FileLock(shared / "site.lock"):
        if not (shared / "site" / "index.html").exists():
            result = subprocess.run(
                [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", shared / "building"],
                cwd=ROOT, capture_output=True, text=True,
                env=os.environ | {"MIBOUNDS_REPOSITORY": "https://example.org/mibounds"},
            )  # fmt: skip
            assert result.returncode == 0, result.stderr
            (shared / "building").rename(shared / "site")
    return shared / "site"


def pages(site):
    found = sorted(site.rglob("*.html"))
    assert len(found) > 50
    return found


# --- the site ------------------------------------------------------------------------------------


def test_the_cookbook_shows_what_it_printed_and_drew(site):
    outputs, figures = 0, 0
    for page in (site / "cookbook").glob("*.html"):
        text = page.read_text()
        assert "<!-- check" not in text
        assert "assert " not in text, page
        outputs += len(re.findall(r'class="[^"]*\bresult\b', text))
        figures += text.count('<figure class="drawn"><svg')
    assert outputs >= 12
    assert figures >= 6


def test_nothing_is_loaded_from_elsewhere(site):
    for page in pages(site):
        text = page.read_text()
        loaded = re.findall(r'<(?:script|img|iframe|source)[^>]*\bsrc="([^"]*)"', text)
        loaded += re.findall(r'<link rel="(?:stylesheet|icon|preconnect)"[^>]*href="([^"]*)"', text)
        assert len(loaded) >= 4
        assert [each for each in loaded if ":" in each or each.startswith("//")] == [], page
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(?:https?:)?//", style.read_text()), style


def test_there_are_two_schemes_a_logo_of_our_own_and_a_link_to_the_repository(site):
    text = (site / "index.html").read_text()
    assert set(re.findall(r'<input[^>]*data-md-color-scheme="(\w+)"', text)) == {"default", "slate"}
    assert '<img src="logo.svg" alt="logo">' in text
    assert '<link rel="icon" href="favicon.svg">' in text
    assert 'href="https://example.org/mibounds"' in text


@pytest.mark.skipif(
    BROWSER is None,
    reason="no browser to look at the site with; on Debian: apt-get install chromium",
)
def test_no_page_is_wider_than_the_window_and_no_code_is_cut_off(site, tmp_path):
    names = ["index.html", "measure.html", "series.html", "tables.html"]
    names += ["api/estimation.html", "api/penalty.html"]
    names += [f"cookbook/{page.name}" for page in sorted((site / "cookbook").glob("*.html"))]
    wide = (
        "<article><pre><code style='overflow:hidden'>" + 300 * "x" + "</code></pre>"
        "<p>" + 300 * "x" + "</p><img src=none.svg></article>"
    )
    found = measure(site, [*names, "wrong.html"], tmp_path, wide)
    assert len(found) == 3 * len(names) + 3
    for each in found[-3:]:  # would the test see it?
        assert each["wide"] > 0
        assert len(each["cut"]) >= 1
        assert len(each["broken"]) == 1
    for each in found[:-3]:
        where = f"{each['page']} at {each['width']}"
        assert 0 <= each["width"] - each["view"] <= 20, where
        assert each["wide"] <= 0, where
        assert each["cut"] == [], where
        assert each["outside"] == 0, where
        assert each["broken"] == [], where
        if each["width"] >= 1280 and "cookbook" in where:  # lines of a hundred characters fit
            assert all(max(map(len, text.split("\n"))) > 100 for text in each["long"]), where
    assert sum(each["blocks"] for each in found) > 3 * 40
    assert sum(each["figures"] for each in found) > 3 * 6


def measure(site, names, folder, wrong):
    """What the browser finds on these pages; the last of them is `wrong`."""
    extra = {
        "/wrong.html": wrong,
        "/look.html": MEASURE.replace("WIDTHS", json.dumps(WIDTHS)).replace(
            "PAGES", json.dumps(names)
        ),
    }

    found = queue.Queue()

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self):
            if self.path not in extra:
                return super().do_GET()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            return self.wfile.write(b"<!DOCTYPE html>" + extra[self.path].encode())

        def do_POST(self):
            found.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=site))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--no-proxy-server", "--remote-debugging-port=0", f"--user-data-dir={folder / 'profile'}",
        f"http://127.0.0.1:{server.server_port}/look.html",
    ]  # fmt: skip
    with open(folder / "log", "wb") as log, subprocess.Popen(command, stderr=log) as browser:
        try:
            return found.get(timeout=240)
        finally:
            browser.terminate()
            server.shutdown()
            thread.join()
            server.server_close()


# --- the API pages -------------------------------------------------------------------------------


def directives():
    """The names that the API pages document, each with its page."""
    return [
        (name, page)
        for page in API
        for name in re.findall(r"^::: mibounds\.([\w.]+)$", page.read_text(), re.MULTILINE)
    ]


def test_every_public_name_is_on_one_page_of_the_api():
    names = [name for name, _ in directives()]
    assert sorted(set(mibounds.__all__) - set(names)) == []
    assert sorted(name for name in names if names.count(name) > 1) == []


def test_nothing_private_is_on_the_api_pages(site):
    shown = []
    for page in (site / "api").glob("*.html"):
        shown += re.findall(r'<h[2-6] id="mibounds\.([\w.]+)"', page.read_text())
    assert len(shown) > 100
    assert [name for name in shown if any(part.startswith("_") for part in name.split("."))] == []
    assert set(mibounds.__all__) <= set(shown)


def test_examples_are_shown_as_code(site):
    pages = [page.read_text() for page in (site / "api").glob("*.html")]
    assert sum(text.count('<span class="gp">&gt;&gt;&gt; </span>') for text in pages) > 300
    for text in pages:
        assert "<blockquote>" not in text  # as >>> outside of code


def test_every_public_name_has_an_example_that_runs():
    for name, page in directives():
        if name in mibounds.__all__ and ">>>" not in (getattr(mibounds, name).__doc__ or ""):
            blocks = re.findall(r"^```pycon\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
            assert any(re.search(rf"\bmb\.{name}\b", block) for block in blocks), name

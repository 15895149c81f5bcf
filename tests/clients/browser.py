"""A real browser for tests of the web console: Debian's Chromium, driven by Playwright; and axe-core, from npm."""

import io
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from tests.needs import require_program, skip_without
from tests.patience import PATIENCE_MS
from tests.samples import choose_sample

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
AXE = "axe-core@4.14.0"
AXE_SHA256 = "20c09fe157a8a34a30e241aaa1fcdade657734f08ab379ecfbeb7d45cc46e878"
FIND_LINKS_OUT_OF_SIGHT = """[...document.querySelectorAll('.side a')]
    .filter(each => each.getBoundingClientRect().right > innerWidth).map(each => each.textContent)"""
FIND_SQUEEZED_CELLS = """[...document.querySelectorAll('td')]
    .filter(each => each.offsetWidth < 120 && each.offsetHeight > 120 && each.textContent.trim().length > 40)
    .map(each => each.textContent.trim())"""
CACHE = Path(__file__).parents[2] / ".cache"
FETCH_S = 60


@contextmanager
def open_browser(executable: str) -> "Iterator[Browser]":
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def run_console(*options: str) -> Iterator[str]:
    """`ottla console` as a process, on a free port. Returns its address."""
    command = [sys.executable, "-m", "ottla", "console", "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as console:
        assert console.stdout is not None
        try:
            yield console.stdout.readline().split()[-1].rstrip("/")
        finally:
            console.terminate()


@contextmanager
def open_page(browser: "Browser") -> "Iterator[Page]":
    """A fresh page, on which no script may fail and nothing may break the content security policy."""
    complaints: list[str] = []
    context = browser.new_context(viewport={"width": 1280, "height": 860}, permissions=["clipboard-read"])
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    opened = context.new_page()
    opened.set_default_timeout(PATIENCE_MS)
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("dialog", lambda dialog: complaints.append("a script of a record has run"))
    opened.on("console", lambda message: complaints.append(message.text) if "Policy" in message.text else None)
    yield opened
    context.close()
    assert complaints == []


def find_faults(browser: "Browser", address: str, paths: Sequence[str], theme: str, width: int) -> list[object]:
    """Which pages are wider than the screen, have links of the navigation outside of it or columns squeezed to a few
    letters, and what axe-core finds that keeps somebody from using them. That looks at a few of the pages, and at all
    of them in a full run."""
    axe, looked_at = find_axe(), choose_sample(paths, 5, f"{theme} pages")
    context = browser.new_context(
        color_scheme=theme,  # type: ignore[arg-type]
        viewport={"width": width, "height": 800},
        bypass_csp=True,  # for axe-core, which is put into the page
    )
    opened = context.new_page()
    opened.set_default_timeout(PATIENCE_MS)
    findings: list[object] = []
    for path in paths:
        opened.goto(address + path)
        opened.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        if (found := opened.evaluate("document.documentElement.scrollWidth")) > width:
            findings.append((path, "is wide", found))
        findings += [(path, "is out of sight", link) for link in opened.evaluate(FIND_LINKS_OUT_OF_SIGHT)]
        findings += [(path, "is squeezed", text) for text in opened.evaluate(FIND_SQUEEZED_CELLS)]
        if path not in looked_at:
            continue
        opened.evaluate(axe)
        for finding in opened.evaluate("axe.run()")["violations"]:
            findings.append((path, finding["id"], finding["nodes"][0]["html"]))
    context.close()
    return findings


def find_chromium() -> str:
    return require_program("chromium")


def find_axe() -> str:
    """The text of axe-core. It comes from the cache, or from npm once; otherwise the test is skipped."""
    kept = CACHE / f"{AXE}.min.js"
    if not kept.exists():
        npm = require_program("npm")
        CACHE.mkdir(exist_ok=True)
        try:
            ended = subprocess.run(
                [npm, "pack", AXE, "--silent"], cwd=CACHE, capture_output=True, text=True, timeout=FETCH_S, check=True
            )
        except (subprocess.SubprocessError, OSError):
            skip_without("axe-core", "npm cannot download it")
        package = CACHE / ended.stdout.split()[-1]
        with tarfile.open(fileobj=io.BytesIO(package.read_bytes())) as archive:
            member = archive.extractfile("package/axe.min.js")
            assert member is not None
            kept.write_bytes(member.read())
        package.unlink()
    text = kept.read_bytes()
    assert sha256(text).hexdigest() == AXE_SHA256
    return text.decode()

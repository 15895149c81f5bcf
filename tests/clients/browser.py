"""A real browser for tests of the web console: Debian's Chromium, driven by Playwright; and axe-core, from npm."""

import io
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from tests.needs import require_program, skip_without

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
AXE = "axe-core@4.14.0"
AXE_SHA256 = "20c09fe157a8a34a30e241aaa1fcdade657734f08ab379ecfbeb7d45cc46e878"
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

"""The web console in a real Chromium: every page in both themes and at phone width, and what a person does there."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.testing import LocalBroker, broker
from tests.clients.browser import find_axe, find_chromium, open_browser
from tests.patience import PATIENCE_MS
from tests.samples import choose_sample

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PAGES = (
    *("/", "/brokers/1", "/topics", "/topics/orders", "/topics/orders/records", "/topics/orders/settings"),
    *("/topics/orders/groups", "/topics/orders/produce", "/groups", "/groups/billing", "/transactions", "/apps"),
    *("/connectors", "/access", "/nowhere"),
)
LOOKS = [(theme, width) for theme in ("light", "dark") for width in (1280, 380)]
PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
BIG = 9_007_199_254_740_993


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalBroker]:
    with broker() as local:
        yield local


@pytest.fixture(scope="module")
def address(cluster: LocalBroker) -> Iterator[str]:
    """The console of a broker that has a few records and a group."""
    find_chromium()
    _seed(cluster.bootstrap)
    command = [sys.executable, "-m", "ottla", "console", "-b", cluster.bootstrap, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as console:
        assert console.stdout is not None
        try:
            yield console.stdout.readline().split()[-1].rstrip("/")
        finally:
            console.terminate()


def _seed(bootstrap: str) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("orders", 3, 1)])["orders"].result()
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(100):
        order = {"id": BIG + number, "customer": "<img src=x onerror=alert(1)>"}
        producer.produce("orders", json.dumps(order), f"c{number % 7}", headers={"trace": "<b>1</b>"})
    producer.flush()
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "billing"})
    consumer.commit(offsets=[TopicPartition("orders", 0, 5)], asynchronous=False)
    consumer.close()


@pytest.fixture(scope="module")
def browser(address: str) -> "Iterator[Browser]":
    with open_browser(find_chromium()) as running:
        yield running


@pytest.fixture
def page(browser: "Browser") -> "Iterator[Page]":
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


@pytest.mark.parametrize(("theme", "width"), choose_sample(LOOKS, 1))
def test_every_page_fits_and_breaks_no_rule(browser: "Browser", address: str, theme: str, width: int) -> None:
    # No page is wider than the screen, and axe-core finds nothing that keeps somebody from using it.
    axe = find_axe()
    context = browser.new_context(
        color_scheme=theme,  # type: ignore[arg-type]
        viewport={"width": width, "height": 800},
        bypass_csp=True,  # for axe-core, which is put into the page
    )
    opened = context.new_page()
    opened.set_default_timeout(PATIENCE_MS)
    findings: list[object] = []
    for path in PAGES:
        opened.goto(address + path)
        opened.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        if (found := opened.evaluate("document.documentElement.scrollWidth")) > width:
            findings.append((path, "is wide", found))
        opened.evaluate(axe)
        for finding in opened.evaluate("axe.run()")["violations"]:
            findings.append((path, finding["id"], finding["nodes"][0]["html"]))
    context.close()
    assert findings == []


def test_create_produce_and_see_it_live(page: "Page", address: str) -> None:
    # What a new user does: a topic, a record that appears in a page that follows, found again by a search.
    page.goto(f"{address}/topics")
    page.fill("input[name=name]", "mine")
    page.click("button:has-text('Create')")
    assert page.inner_text("h1") == "mine"
    follower = page.context.new_page()
    follower.goto(f"{address}/topics/mine/records")
    follower.click("button:has-text('Follow live')")
    follower.wait_for_selector("text=Waiting for new records")
    page.goto(f"{address}/topics/mine/produce")
    page.fill("textarea[name=value]", json.dumps({"id": BIG, "text": "<script>alert(1)</script>"}))
    page.click("button:has-text('Send')")
    follower.wait_for_selector(f"text={BIG}", timeout=PATIENCE_MS)
    page.fill("input[type=search]", "nothing like it")
    page.click("button:has-text('Show')")
    page.wait_for_selector("text=No record matches")
    follower.close()


def test_keyboard_theme_and_search(page: "Page", address: str) -> None:
    page.goto(f"{address}/")
    page.keyboard.press("g")
    page.keyboard.press("o")
    page.wait_for_url("**/topics")
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.keyboard.press("t")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    page.reload()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before  # it is remembered
    page.keyboard.press("/")
    page.keyboard.type("zzz")
    page.wait_for_selector("text=No topic matches")  # without a new page: the field keeps the focus
    assert page.evaluate("document.activeElement.name") == "q"


def test_copies_and_plans(page: "Page", address: str, cluster: LocalBroker) -> None:
    page.goto(f"{address}/groups/billing")
    page.click("text=Copy as")
    page.click("button[data-copy] >> nth=0")
    page.wait_for_selector("text=Copied")
    assert page.evaluate("navigator.clipboard.readText()") == f"ottla group describe billing -b {cluster.bootstrap}"
    page.wait_for_selector(".u-over")  # the chart is drawn once there are samples, without a new page
    page.click("text=Show what would happen")
    page.wait_for_selector("h3:has-text('What would happen')")
    page.click("button:has-text('Reset 1 offsets')")
    page.wait_for_selector("text=1 offsets are reset.")


@pytest.mark.long
def test_screenshots_of_the_documentation(browser: "Browser", address: str, tmp_path: Path) -> None:
    # With OTTLA_SCREENSHOTS=1 they replace those of docs/console.md.
    target = PICTURES if os.environ.get("OTTLA_SCREENSHOTS") == "1" else tmp_path
    for name, path, theme in (("records", "/topics/orders/records", "light"), ("group", "/groups/billing", "dark")):
        context = browser.new_context(color_scheme=theme, viewport={"width": 1200, "height": 760})  # type: ignore[arg-type]
        opened = context.new_page()
        opened.goto(address + path)
        if name == "group":
            opened.wait_for_selector(".u-over", timeout=PATIENCE_MS)
        opened.screenshot(path=target / f"console-{name}.png")
        context.close()
        assert (target / f"console-{name}.png").stat().st_size > 10_000

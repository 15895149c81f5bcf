"""The web console in a real Chromium: every page in both themes and at phone width, and what a person does there."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.testing import LocalBroker, broker
from tests.clients.browser import find_chromium, find_faults, open_browser, open_page, run_console
from tests.patience import PATIENCE_MS
from tests.unit.connect.rest.conftest import RestClient, serve
from tests.unit.connect.rest.herders import SOURCE

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PAGES = (
    *("/", "/brokers/1", "/topics", "/topics/orders", "/topics/orders/records", "/topics/orders/settings"),
    *("/topics/orders/groups", "/topics/orders/produce", "/groups", "/groups/billing", "/transactions", "/apps"),
    *("/transactions?hanging=1&older=0s", "/apps/shop", "/connectors", "/connectors/lines", "/access", "/nowhere"),
)
LOOKS = (
    ("light", 1280),
    ("dark", 380),
    pytest.param("dark", 1280, marks=pytest.mark.long),
    pytest.param("light", 380, marks=pytest.mark.long),
)
PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
APP = {
    "state": "stopped",
    "address": "http://127.0.0.1:1",
    "host": "db1",
    "pid": 4711,
    "started_ms": 1_700_000_000_000,
    "description": "app shop\n\nsubtopology orders\n  reads    orders\n  step     count\n  writes   totals\n",
}
BIG = 9_007_199_254_740_993


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalBroker]:
    """With logins and ACLs, so that there is everything to see."""
    with broker(security="sasl_ssl", acls=True) as local:
        yield local


@pytest.fixture(scope="module")
def worker() -> Iterator[RestClient]:
    """The REST API of a worker of Connect."""
    with serve({}) as client:
        client.create("lines")
        yield client


@pytest.fixture(scope="module")
def address(cluster: LocalBroker, worker: RestClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The console of a broker that has a few records, a group and an app."""
    find_chromium()
    _seed(cluster)
    file = tmp_path_factory.mktemp("console") / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in cluster.client_settings.items()))
    with run_console("--command-config", str(file), "--connect", f"http://127.0.0.1:{worker.port}") as address:
        yield address


def _seed(cluster: LocalBroker) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    settings: dict[str, Any] = {**cluster.client_settings, "log_level": 0}
    admin = AdminClient(settings)
    for made in admin.create_topics([NewTopic("orders", 3, 1), NewTopic("__ottla_streams_apps", 1, 1)]).values():
        made.result()
    producer = Producer(settings)
    producer.produce("__ottla_streams_apps", json.dumps(APP), "shop")
    for number in range(100):
        order = {"id": BIG + number, "customer": "<img src=x onerror=alert(1)>"}
        producer.produce("orders", json.dumps(order), f"c{number % 7}", headers={"trace": "<b>1</b>"})
    producer.flush()
    consumer = Consumer({**settings, "group.id": "billing"})
    consumer.commit(offsets=[TopicPartition("orders", 0, 5)], asynchronous=False)
    consumer.close()


@pytest.fixture(scope="module")
def browser(address: str) -> "Iterator[Browser]":
    with open_browser(find_chromium()) as running:
        yield running


@pytest.fixture
def page(browser: "Browser") -> "Iterator[Page]":
    with open_page(browser) as opened:
        yield opened


@pytest.mark.parametrize(("theme", "width"), LOOKS)
def test_every_page_fits_and_breaks_no_rule(browser: "Browser", address: str, theme: str, width: int) -> None:
    # No page is wider than the screen, and axe-core finds nothing that keeps somebody from using it.
    assert find_faults(browser, address, PAGES, theme, width) == []


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
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith(f"ottla group describe billing -b {cluster.bootstrap} -X security.protocol=")
    assert cluster.client_settings["sasl.password"] not in page.content()
    page.wait_for_selector(".u-over")  # the chart is drawn once there are samples, without a new page
    page.click("text=Show what would happen")
    page.wait_for_selector("h3:has-text('What would happen')")
    page.click("button:has-text('Reset 1 offsets')")
    page.wait_for_selector("text=1 offsets are reset.")


def test_connectors_and_access(page: "Page", address: str, worker: RestClient) -> None:
    # What an administrator does: a connector that is wrong first, a user, an ACL, a quota; then they are removed.
    page.goto(f"{address}/connectors")
    page.select_option("select[name=plugin]", SOURCE)
    page.click("text=Begin with its settings")
    page.wait_for_url("**plugin=**")
    text = page.input_value("textarea[name=config]").replace("name=", "name=made", 1).replace("topic=", "topic=t")
    page.fill("textarea[name=config]", f"{text}batch.size=many\n")
    page.click("button:has-text('Create')")
    page.wait_for_selector("th:has-text('batch.size')")  # the setting that is wrong
    page.fill("textarea[name=config]", text)
    page.click("button:has-text('Create')")
    page.wait_for_selector("text=Connector made is created.")
    for action, state in (("Pause", "PAUSED"), ("Resume", "RUNNING"), ("Stop", "STOPPED")):
        page.click(f"button:has-text('{action}')")
        page.wait_for_selector(f"h1 .badge:has-text('{state}')")
    page.fill("textarea[name=config]", page.input_value("textarea[name=config]") + "batch.size=7\n")
    page.click("button:has-text('Save')")
    page.wait_for_selector("text=The configuration of made is changed.")
    assert worker.herder.configs["made"]["batch.size"] == "7"
    page.goto(f"{address}/access")
    page.click("text=New user…")
    form = page.locator("form:has(select[name=mechanism])")
    form.locator("input[name=name]").fill("ann")
    form.locator("input[name=password]").fill("geheim")
    form.locator("button").click()
    page.wait_for_selector("text=User ann is created.")
    page.click("text=New ACL…")
    form = page.locator("form:has(select[name=operation])")
    form.locator("input[name=principal]").fill("User:ann")
    form.locator("input[name=resource_name]").fill("orders")
    form.locator("button").click()
    page.wait_for_selector("text=The ACL is created.")
    page.click("text=New quota…")
    form = page.locator("form:has(select[name=key])")
    form.locator("input[name=user]").fill("ann")
    form.locator("input[name=value]").fill("1M")
    form.locator("button").click()
    page.wait_for_selector("text=is limited to 1048576.")
    page.click("summary[aria-label='Change producer_byte_rate of user ann ']")
    page.click("button:has-text('Remove')")
    page.wait_for_selector("text=has no limit of its own any more.")
    page.click("button[aria-label='Delete this ACL of User:ann']")
    page.wait_for_selector("text=The ACL is deleted.")
    page.click("summary[aria-label='Delete ann']")
    page.fill("tr:has-text('ann') input[name=confirm]", "ann")
    page.click("tr:has-text('ann') button:has-text('Delete')")
    page.wait_for_selector("text=User ann is deleted.")


CHART_SAMPLES = """count => JSON.parse(document.querySelector('[data-chart]').dataset.chart)[0].length >= count"""


def _trade(cluster: LocalBroker) -> Iterator[None]:
    """A shop's orders in the topic `sales`, and a group `invoices` that reads at most 40 of them at a time."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    settings: dict[str, Any] = {**cluster.client_settings, "log_level": 0}
    cluster.create_topic("sales", partitions=3)
    producer = Producer(settings)
    consumer = Consumer({**settings, "group.id": "invoices"})
    sent = [0, 0, 0]
    read = [0, 0, 0]
    try:
        for orders in (30, 60, 120, 90, 45, 30, 45, 60):
            for number in range(orders):
                order = {"order": 1_000 + sum(sent), "total": f"{(number * 37) % 90 + 9}.90", "items": number % 4 + 1}
                producer.produce("sales", json.dumps(order), f"customer-{number * 7 % 40}", partition=number % 3)
                sent[number % 3] += 1
            producer.flush()
            read = [min(have + 20, end - 3) for have, end in zip(read, sent, strict=True)]
            offsets = [TopicPartition("sales", partition, offset) for partition, offset in enumerate(read)]
            consumer.commit(offsets=offsets, asynchronous=False)
            yield
    finally:
        consumer.close()


@pytest.mark.long
def test_screenshots_of_the_documentation(
    browser: "Browser", address: str, cluster: LocalBroker, tmp_path: Path
) -> None:
    # With OTTLA_SCREENSHOTS=1 they replace those of docs/console.md.
    target = PICTURES if os.environ.get("OTTLA_SCREENSHOTS") == "1" else tmp_path
    pages = {}
    for name, theme in (("records", "light"), ("group", "dark")):
        context = browser.new_context(
            color_scheme=theme,  # type: ignore[arg-type]
            viewport={"width": 1200, "height": 760},
            bypass_csp=True,  # for wait_for_function
        )
        pages[name] = context.new_page()
        pages[name].set_default_timeout(PATIENCE_MS)
    for step, _ in enumerate(_trade(cluster), start=1):
        pages["group"].goto(f"{address}/groups/invoices")  # each sample of the chart sees another lag
        while pages["group"].query_selector("[data-chart]") is None:  # on a busy machine the broker answers too late
            pages["group"].goto(f"{address}/groups/invoices")
        pages["group"].wait_for_function(CHART_SAMPLES, arg=step)
    pages["records"].goto(f"{address}/topics/sales/records")
    pages["records"].click(".cell-value summary >> nth=2")
    pages["group"].wait_for_selector(".u-over")
    for name, opened in pages.items():
        opened.screenshot(path=target / f"console-{name}.png")
        opened.context.close()
        assert (target / f"console-{name}.png").stat().st_size > 10_000

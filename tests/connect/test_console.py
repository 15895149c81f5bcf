"""The console's pages of connectors in Chromium, with a worker that runs them: `ottla connect up`."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.testing import LocalBroker, broker
from tests.clients.browser import find_chromium, find_faults, open_browser, open_page, run_console
from tests.connect.workers import run_workers, wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Page


def create(page: "Page", config: str) -> None:
    page.goto(f"{page.url.partition('/connectors')[0]}/connectors")
    page.fill("textarea[name=config]", config)
    page.click("button:has-text('Create')")
    page.wait_for_selector(".note:has-text('is created.')")


def act(page: "Page", action: str, state: str) -> None:
    """Click, and wait until the page that renews itself shows the state of the connector and of its tasks."""
    page.click(f"#actions button:text-is('{action}')")
    page.wait_for_selector(f"#state .badge:has-text('{state}')")
    if state != "STOPPED":
        page.wait_for_selector(f"#tasks .badge:has-text('{state}')")


def count_lines(local: LocalBroker, topic: str) -> int:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": local.bootstrap, "group.id": "counter"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0))[1])
    finally:
        consumer.close()


@pytest.mark.long
def test_connectors_are_created_watched_changed_and_deleted(tmp_path: Path) -> None:
    # What an administrator does with a source and with a sink that fails; each action shows its effect in the page.
    lines = tmp_path / "lines"
    lines.write_text("one\ntwo\n")
    with (
        broker(process=True) as local,
        open_browser(find_chromium()) as browser,
        run_workers(local.bootstrap, tmp_path, "etl", 1) as workers,
        run_console("-b", local.bootstrap, "--connect", f"http://{workers[0].address}") as address,
        open_page(browser) as page,
    ):
        local.create_topic("copied", partitions=1)
        page.goto(f"{address}/connectors")
        create(page, f"name=lines\nconnector.class=FileStreamSource\nfile={lines}\ntopic=copied\n")
        page.wait_for_selector("#tasks .badge:has-text('RUNNING')")
        wait_until(lambda: count_lines(local, "copied") >= 2)
        page.wait_for_selector("a.tag:has-text('copied')")  # what it has written, and how far it has read
        page.wait_for_selector("#places td:has-text('position')")
        act(page, "Pause", "PAUSED")
        lines.write_text("one\ntwo\nthree\n")
        act(page, "Resume", "RUNNING")
        wait_until(lambda: count_lines(local, "copied") >= 3)
        act(page, "Restart", "RUNNING")
        page.click("button[aria-label='Restart task 0']")
        page.wait_for_selector(".note:has-text('has restarted task 0.')")
        page.wait_for_selector("#tasks .badge:has-text('RUNNING')")
        act(page, "Stop", "STOPPED")
        page.wait_for_selector("#tasks:has-text('No tasks.')")
        page.wait_for_selector("#ends summary:has-text('Reset the offsets')")  # of a connector that is stopped

        create(
            page, f"name=rows\nconnector.class=JdbcSink\nconnection.url=jdbc:sqlite:{tmp_path}/x.db\ntopics=copied\n"
        )
        page.wait_for_selector("#tasks .badge:has-text('FAILED')")
        page.wait_for_selector("#why summary:has-text('Task 0: ')")
        page.wait_for_selector("#why summary:has-text('copied-0 at offset 0')")  # the record, and what is wrong with it
        page.goto(f"{address}/connectors")
        page.wait_for_selector("#connectors tr:has-text('rows') .badge:has-text('1 failed')")
        page.wait_for_selector("#connectors tr:has-text('lines') .badge:has-text('STOPPED')")
        for theme, width in (("light", 1280), ("dark", 380)):
            paths = ("/connectors", "/connectors/lines", "/connectors/rows")
            assert find_faults(browser, address, paths, theme, width) == []
        for name in ("rows", "lines"):
            page.goto(f"{address}/connectors/{name}")
            page.click("summary:has-text('Delete')")
            page.fill("form:has(input[value=delete]) input[name=confirm]", name)
            page.click("button.bad:text-is('Delete')")
            page.wait_for_selector(f".note:has-text('Connector {name} is deleted.')")
        page.wait_for_selector("#connectors:has-text('There are no connectors.')")
        assert workers[0].ask("GET", "/connectors") == (200, [])

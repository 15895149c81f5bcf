"""The console's pages of a Streams app that runs as a process of its own, in Chromium; and what they offer to copy."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.cli import main
from ottla.testing import LocalBroker, broker
from tests.clients.browser import find_chromium, find_faults, open_browser, open_page, run_console

if TYPE_CHECKING:
    from playwright.sync_api import Page
    from pyspark.sql import SparkSession

EXAMPLE = Path(__file__).parents[2] / "examples/streams/word_count.py"


@contextmanager
def run_example(local: LocalBroker, directory: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """`ottla stream run`, in a process group of its own with its JVM."""
    command = [sys.executable, "-m", "ottla", "stream", "run", str(EXAMPLE)]
    for setting in (f"bootstrap={local.bootstrap}", "master=local[2]", f"state_dir={directory / 'state'}"):
        command += ["--set", setting]
    with (directory / "app.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def send_lines(local: LocalBroker, *lines: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": local.bootstrap})
    for line in lines:
        producer.produce("lines", line)
    producer.flush()


def run_copies(page: "Page", capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """What each copy of the page prints, without borders and spaces."""
    printed = {}
    for item in page.query_selector_all(".copy-item"):
        name, text = (item.query_selector(each).text_content() for each in ("b", "code"))  # type: ignore[union-attr]
        assert name is not None
        assert text is not None
        capsys.readouterr()
        if name == "ottla":
            for line in text.splitlines():
                assert main(shlex.split(line)[1:]) == 0
        else:
            exec(compile(text, name, "exec"), {"__name__": "copied"})
        printed[name] = re.sub(r"[\s|]+", " ", capsys.readouterr().out)
    return printed


@pytest.mark.long
def test_an_app_is_watched_queried_and_stopped(
    spark: "SparkSession", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with broker() as local, open_browser(find_chromium()) as browser:
        local.create_topic("lines", partitions=2)
        local.create_topic("word-counts", partitions=2)
        send_lines(local, "to be", "or not", "to be")
        with run_console("-b", local.bootstrap) as address, open_page(browser) as page:
            with run_example(local, tmp_path) as process:
                page.goto(f"{address}/apps")
                page.click("#apps a:has-text('word-count')")  # the list renews itself
                page.wait_for_selector("#app-state .badge:has-text('running')")
                assert page.locator("svg.topology .topic text").all_text_contents()[:1] == ["lines"]
                page.wait_for_selector("#stores tr:has-text('words')")
                page.wait_for_selector("#progress tr:has-text('lines-to') >> td:nth-child(6):text-is('3')")  # read
                send_lines(local, "to be", "again")
                page.wait_for_selector("#progress tr:has-text('lines-to') >> td:nth-child(6):text-is('5')")  # live
                # Of 9 words, those of a batch that are the same are one row.
                page.wait_for_selector("#progress tr:nth-child(2) >> td:nth-child(6):text-matches('^[5-9]$')")
                app_copies = run_copies(page, capsys)
                page.click("#state a:has-text('words')")
                page.fill("#state input[name=key]", "be")
                page.click("button:has-text('Query')")
                page.wait_for_selector("#rows tr:has(td:text-is('be')):has(td:text-is('3'))")
                key_copies = run_copies(page, capsys)
                page.goto(f"{address}/apps/word-count?store=words")
                assert page.locator("#rows tr").count() == 5
                store_copies = run_copies(page, capsys)
                page.goto(f"{address}/apps")
                list_copies = run_copies(page, capsys)
                paths = ("/apps", "/apps/word-count?store=words", "/apps/word-count?store=words&key=be")
                for theme, width in (("light", 1280), ("dark", 380)):
                    assert find_faults(browser, address, paths, theme, width) == []
                page.goto(f"{address}/apps/word-count")
                page.click("summary:has-text('Stop')")
                page.fill("input[name=confirm]", "word-count")
                page.click("button:has-text('Stop')")
                page.wait_for_selector("text=App word-count was told to stop.")
                page.wait_for_selector("#app-state .badge:has-text('stopped')")
                process.wait()
            stopped_copies = run_copies(page, capsys)
            with run_example(local, tmp_path) as process:
                page.wait_for_selector("#app-state .badge:has-text('running')")  # the page was open all the time
                page.wait_for_selector("#stores tr:has-text('words')")
                os.killpg(process.pid, signal.SIGKILL)
                page.wait_for_selector("#app-state .badge:has-text('gone')")
    assert all("running" in text and "lines" in text for text in app_copies.values()), app_copies
    assert re.search(r"running 0 5 ", app_copies["Python"]), app_copies
    assert all(re.search(r'\bbe"?,? .*?\b3\b', text) for text in key_copies.values()), key_copies
    for word in ("to", "be", "or", "not", "again"):
        assert all(re.search(rf"\b{word}\b", text) for text in store_copies.values()), (word, store_copies)
    assert all("word-count" in text and "running" in text for text in list_copies.values()), list_copies
    assert all("word-count" in text and "stopped" in text for text in stopped_copies.values()), stopped_copies

"""`ottla demo`: starts a broker, sends the events of a shop through a pipeline on Spark, and checks the results.

The broker and the pipeline are child processes, and the data is in a temporary directory. The demo is an ordinary
client: it sends and reads records with confluent-kafka. On a terminal the broker and the pipeline keep running
afterwards, so that the user can try commands; otherwise the demo ends by itself.

    story.py          runs the demo with Spark from start to verdict
    shop.py           makes the events of the shop
    books.py          the results that the pipeline must have, computed by a simple model
    topics.py         names of topics and groups
    traffic.py        sends the events
    pipeline.py       the Streams app, which runs as a separate program
    results.py        reads the results
    screen.py         shows the progress
    advice.py         commands to try next
    children.py       starts and ends the broker and the pipeline
    broker_only.py    the demo without Spark
    exchange.py       sends records to the broker and reads them back
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from ottla.cli.client import CommandClient
from ottla.cli.command_error import CommandError
from ottla.cli.demo import children
from ottla.cli.demo.advice import after_the_exchange, after_the_story
from ottla.cli.demo.broker_only import exchange_records
from ottla.cli.demo.exchange import Exchange
from ottla.cli.demo.story import Story
from ottla.cli.demo.topics import create_topics
from ottla.cli.interruption import Interrupted, Interruption
from ottla.cli.numbers import INT32_MAX, int_between, parse_seconds

SECONDS = 20.0
EXCHANGE_SECONDS = 5.0
RATE = 10_000
GLANCE_S = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Start a broker in a temporary directory and a pipeline on Spark, send a shop's events through both, check "
        "the results, leave everything up."
    )
    parser.add_argument("--seconds", type=parse_seconds, help=f"how long records are produced (default: {SECONDS:.0f})")
    parser.add_argument(
        "--rate", type=int_between(1, INT32_MAX), default=RATE, help=f"events a second (default: {RATE})"
    )
    parser.add_argument("--broker-only", action="store_true", help="without Spark: numbered records there and back")
    parser.add_argument(
        "--record-bytes",
        type=int_between(Exchange.VALUE_BYTES_MIN, INT32_MAX),
        default=200,
        help="of those, the size of a value (default: 200)",
    )


def run(options: argparse.Namespace) -> int:
    without_spark = "" if options.broker_only else _why_without_spark()
    status = 0
    with Interruption() as interruption:
        with suppress(Interrupted), tempfile.TemporaryDirectory(prefix="ottla-demo-") as directory:
            if without_spark or options.broker_only:
                status = _show_broker(options, directory, interruption, without_spark)
            else:
                status = _show_pipeline(options, directory, interruption)
        if interruption.number == signal.SIGINT:
            print("\nStopped; the demo's data is gone.")
        elif interruption.number is not None:
            status = 128 + interruption.number
    return status


def _why_without_spark() -> str:
    """Why Spark cannot run here; empty if it can."""
    if any(find_spec(module) is None for module in ("pyspark", "pyarrow")):
        return "PySpark is not installed (it comes with the extra 'spark' of Ottla): the demo shows the broker alone."
    from ottla.spark.java import java_environment

    try:
        java_environment(os.environ)
    except RuntimeError as error:
        return f"{error}. So this is the broker alone."
    return ""


def _show_broker(options: argparse.Namespace, directory: str, interruption: Interruption, reason: str) -> int:
    if reason:
        print(reason)
    with children.broker(directory, interruption) as (broker, address):
        with interruption.raising():
            seconds = options.seconds or EXCHANGE_SECONDS
            status = exchange_records(address, seconds, options.record_bytes, interruption)
        if _is_interactive():
            print(after_the_exchange(address), flush=True)
            while interruption.number is None:
                _check(broker)
                time.sleep(GLANCE_S)
    return status


def _show_pipeline(options: argparse.Namespace, directory: str, interruption: Interruption) -> int:
    data, state = os.path.join(directory, "broker"), os.path.join(directory, "state")
    log = Path(directory) / "pipeline.log"
    with children.broker(data, interruption) as (broker, address):
        client = CommandClient(argparse.Namespace(bootstrap=address, client_settings=[]))
        with interruption.raising():
            create_topics(client)
        with children.pipeline([address, state], log, interruption) as pipeline:
            with interruption.raising():
                story = Story(client, pipeline, interruption, options.rate)
                status = _verdict(story.run(options.seconds or SECONDS), story.summary)
                print("  The best minute of the shop, asked of the running app:\n")
                url, row = story.ask_for_a_minute()
                print(f"  curl '{url}'\n  {row}\n", flush=True)
                story.close()
            if _is_interactive():
                print(after_the_story(address, story.address, story.now_ms), flush=True)
                while interruption.number is None:
                    _check(broker)
                    pipeline.read_messages()
                    time.sleep(GLANCE_S)
    return status


def _verdict(complaints: list[str], summary: str) -> int:
    print(f"  {summary}.")
    if complaints:
        print(f"  THE RESULTS ARE WRONG: {'; '.join(complaints)}\n", flush=True)
        return 1
    print("  The results are what the shop's own books say, to the cent and each of them once.\n", flush=True)
    return 0


def _is_interactive() -> bool:
    return sys.stdout.isatty() and sys.stdin.isatty()


def _check(broker: "subprocess.Popen[str]") -> None:
    if broker.poll() is not None:
        raise CommandError("demo: the broker ended by itself")

"""`ottla demo`: a broker of its own in a temporary directory, records through it and back, counted and checked.

It is a client like any other: the broker is a child process, and the records travel through confluent-kafka.
On a terminal the broker stays up afterwards, to be tried; without one the command ends by itself.
"""

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from ottla.cli.exchange import TOPIC, Exchange
from ottla.cli.refusal import BAD_REQUEST, Refusal

REFRESH_S = 0.1
STOP_S = 15.0
GLANCE_S = 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Start a broker in a temporary directory, send records through it, check them, leave it up."
    parser.add_argument("--seconds", type=float, default=5.0, help="how long records are produced (default: 5)")
    parser.add_argument("--record-bytes", type=int, default=200, help="size of a record's value (default: 200)")


def run(options: argparse.Namespace) -> int:
    if options.seconds <= 0 or options.record_bytes < Exchange.VALUE_BYTES_MIN:
        raise Refusal(f"demo: --seconds above 0, --record-bytes of {Exchange.VALUE_BYTES_MIN} or more", BAD_REQUEST)
    interactive = sys.stdout.isatty() and sys.stdin.isatty()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    status = 0
    try:
        with tempfile.TemporaryDirectory(prefix="ottla-demo-") as directory, _broker(directory) as (child, address):
            status = _exchange_records(address, options.seconds, options.record_bytes)
            if interactive:
                print(_suggestions(address), flush=True)
                _wait_for_interrupt(child)
    except KeyboardInterrupt:
        print("\nStopped; the demo's data is gone.")
    return status


def _wait_for_interrupt(child: subprocess.Popen[str]) -> None:
    """Never in one long system call: a signal that comes just before it would be seen only when it is over."""
    while child.poll() is None:
        time.sleep(GLANCE_S)
    raise Refusal("demo: the broker ended by itself")


@contextmanager
def _broker(directory: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A broker as a child, and its address. In a session of its own, or Ctrl-C would reach it before us."""
    command = [sys.executable, "-m", "ottla", "up", "--port", "0", "--data", directory, "--log-level", "warning"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert child.stdout is not None
        line = child.stdout.readline().strip()
        if " ready on " not in line:
            raise Refusal("demo: the broker did not start")
        print(line)
        yield child, line.split(" ready on ")[1].split()[0]
    finally:
        child.terminate()
        try:
            child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        assert child.stdout is not None
        child.stdout.close()


def _exchange_records(address: str, seconds: float, record_bytes: int) -> int:
    """Produce for a while, consume all of it, show the rates meanwhile; the status is 0 if every record came back."""
    exchange = Exchange(address, record_bytes)
    print(f"Producing to topic {TOPIC!r} and consuming it again, {record_bytes} bytes a record:\n")
    live = sys.stdout.isatty()
    started = shown = time.perf_counter()
    while not exchange.finished:
        now = time.perf_counter()
        exchange.turn(producing=now - started < seconds)
        if now - shown >= REFRESH_S and live:
            shown = now
            print(f"\r  {_rates(exchange, now - started)}", end="", flush=True)
    elapsed = time.perf_counter() - started
    print("\r" * live + f"  {_rates(exchange, elapsed)}\n")
    exchange.close()
    for complaint in exchange.complaints:
        print(f"  {complaint}")
    verdict = "Every record came back, once and in order." if exchange.intact else "RECORDS WERE LOST OR CHANGED."
    print(f"  {exchange.produced:,} records in {elapsed:.1f} s. {verdict}\n", flush=True)
    return 0 if exchange.intact else 1


def _rates(exchange: Exchange, seconds: float) -> str:
    def rate(records: int) -> str:
        per_second = records / max(seconds, 0.001)
        return f"{per_second * exchange.record_bytes / 1e6:7.1f} MB/s {per_second:9,.0f} msg/s"

    return f"in {rate(exchange.acknowledged)}   out {rate(exchange.consumed)}   {exchange.consumed:>11,} records"


def _suggestions(address: str) -> str:
    ottla = f".venv/bin/ottla {{}} -b {address}"
    commands = {
        ottla.format(f"topic describe {TOPIC}"): "what is there",
        ottla.format(f"consume {TOPIC} --last 5 --format '%p %o %S\\n'"): "its newest records",
        f"echo hello | {ottla.format('produce greetings --create')}": "a topic of your own",
        ottla.format("consume greetings --follow"): "and whatever comes to it",
        ottla.format("bench"): "how fast it is",
    }
    width = max(map(len, commands))
    lines = "\n".join(f"  {command:{width}}    {purpose}" for command, purpose in commands.items())
    return f"""The broker is still up on {address}. From another terminal, for example:

{lines}

Or from Python:

  from confluent_kafka import Producer
  producer = Producer({{"bootstrap.servers": "{address}"}})
  producer.produce("greetings", "hello")
  producer.flush()

A broker that keeps its data:

  .venv/bin/ottla up

Ctrl-C stops the demo and deletes its data."""


def _leave(number: int, frame: FrameType | None) -> None:
    """Unwind, so that the child is stopped and the directory removed."""
    raise SystemExit(128 + number)

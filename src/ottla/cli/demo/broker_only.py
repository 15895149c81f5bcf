"""The demo without Spark: numbered records through the broker and back, counted and checked."""

import sys
import time

from ottla.cli.demo.exchange import TOPIC, Exchange
from ottla.cli.interruption import Interruption

REFRESH_S = 0.1


def exchange_records(address: str, seconds: float, record_bytes: int, interruption: Interruption) -> int:
    """Sends records for a while, reads them all back and shows the rates. Returns 0 if every record came back."""
    exchange = Exchange(address, record_bytes)
    print(f"Producing to topic {TOPIC!r} and consuming it again, {record_bytes} bytes a record:\n")
    live = sys.stdout.isatty()
    started = shown = time.perf_counter()
    while not exchange.finished:
        interruption.check()
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

"""What to try next, now that a broker is up: commands that can be typed as they stand."""

from collections.abc import Mapping

from ottla.cli.demo.exchange import TOPIC
from ottla.cli.demo.shop import order_text
from ottla.cli.demo.topics import APP, ORDERS, REVENUE, SALES

QUERY = f"select country, count(*) as orders, sum(cents) / 100 as revenue from {SALES} group by country"


def after_the_story(address: str, queries: str, now_ms: int) -> str:
    """`queries` is the address of the app's pages, and `now_ms` the time in the shop."""
    ottla = f".venv/bin/ottla {{}} -b {address}"
    order = order_text(1_000_000, "c001", "books", 1_000_000, now_ms)
    tries = {
        ottla.format("topic list"): "what is there",
        ottla.format(f"consume {REVENUE} --last 5 --format key-value"): "the newest results",
        ottla.format(f"consume {SALES} --follow"): "leave it running, and",
        f"echo '{order}' | {ottla.format(f'produce {ORDERS} -k c001')}": "order something, which counts in this minute",
        ottla.format(f"stream query {APP} {REVENUE} books --limit 3"): "ask the app for rows",
        f"curl '{queries}/stores/{REVENUE}?limit=3'": "the same over HTTP; also /stores, /progress, /metrics",
        ottla.format(f"stream describe {APP}"): "what the app does, and where",
        ottla.format(f"group describe {APP}"): "how far it is",
        ottla.format(f'sql "{QUERY}" --value-format json'): "a topic is a table",
    }
    return f"""Broker and pipeline are still up, on {address}. From another terminal, for example:

{_table(tries)}

The pipeline is src/ottla/cli/demo/pipeline.py; docs/streams.md and docs/examples.md have more.

Ctrl-C stops the demo and deletes its data."""


def after_the_exchange(address: str) -> str:
    ottla = f".venv/bin/ottla {{}} -b {address}"
    tries = {
        ottla.format(f"topic describe {TOPIC}"): "what is there",
        ottla.format(f"consume {TOPIC} --last 5 --format '%p %o %S\\n'"): "its newest records",
        f"echo hello | {ottla.format('produce greetings --create')}": "a topic of your own",
        ottla.format("consume greetings --follow"): "and whatever comes to it",
        ottla.format("bench"): "how fast it is",
    }
    return f"""The broker is still up on {address}. From another terminal, for example:

{_table(tries)}

Or from Python:

  from confluent_kafka import Producer
  producer = Producer({{"bootstrap.servers": "{address}"}})
  producer.produce("greetings", "hello")
  producer.flush()

A broker that keeps its data:

  .venv/bin/ottla up

Ctrl-C stops the demo and deletes its data."""


def _table(tries: Mapping[str, str]) -> str:
    return "\n".join(f"  {command}\n      {purpose}" for command, purpose in tries.items())

"""`ottla sink list|describe|abort`: queries that write topics exactly once, as the cluster knows them.

A sink of Spark (`ottla.spark.write_stream`, `writeStream.format("ottla")`) keeps a ledger in the broker of the batches
that it has written. This command shows the ledgers and the open transactions of the sinks: readers of committed records
wait for those.
"""

import argparse
import time
from typing import TYPE_CHECKING

from ottla.cli.client import create_action_adder, open_own_client
from ottla.cli.command_error import CommandError
from ottla.cli.output import JSON, add_format_argument, counted, hyphenate, show_json, show_rows, show_table

if TYPE_CHECKING:
    from ottla.client.client import Client
    from ottla.client.exactly_once.sinks import Sink
    from ottla.client.transaction_states import TransactionState

COLUMNS = ("transactional_id", "last_batch", "state", "producer_id", "epoch", "open_s", "timeout_s", "partitions")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    action = create_action_adder(parser)
    add_format_argument(action("list", "list queries that write topics exactly once"))
    describe = action("describe", "show a query's ledger and its transactions")
    describe.add_argument("names", nargs="+", metavar="QUERY", help="the id of a query, or its beginning")
    add_format_argument(describe)
    abort = action("abort", "abort the open transactions of a query that will not be started again")
    abort.add_argument("names", nargs="+", metavar="QUERY", help="the id of a query, or its beginning")


def run(options: argparse.Namespace) -> int:
    actions = {"list": _list, "describe": _describe, "abort": _abort}
    with open_own_client(options) as client:
        actions[options.action](client, options)
    return 0


def _list(client: "Client", options: argparse.Namespace) -> None:
    from ottla.client.exactly_once.sinks import find_sinks

    columns = ("query", "topic", "transactions", "last_batch", "open")
    rows = [
        (sink.query_id, sink.topic, _kind(sink), sink.last_batch, len(sink.open_transactions))
        for sink in find_sinks(client)
    ]
    show_rows(options.format, columns, rows)


def _describe(client: "Client", options: argparse.Namespace) -> None:
    sinks = _found(client, options.names)
    now = time.time_ns() // 1_000_000
    if options.format == JSON:
        show_json([_document(sink, now) for sink in sinks])
        return
    for number, sink in enumerate(sinks):
        if number:
            print()
        landed = "no batch yet" if sink.last_batch is None else f"last batch {sink.last_batch}"
        opened = counted(len(sink.open_transactions), "open transaction")
        print(f"{sink.query_id}: topic {sink.topic!r}, one transaction {_kind(sink)}, {landed}, {opened}")
        if sink.transactions:
            show_table(COLUMNS, [_row(sink, each, now) for each in sink.transactions])


def _abort(client: "Client", options: argparse.Namespace) -> None:
    from ottla.client.transaction_states import abort_transactions

    for sink in _found(client, options.names):
        names = [each.transactional_id for each in sink.open_transactions]
        abort_transactions(client, names)
        print(f"{sink.query_id}: topic {sink.topic!r}, {counted(len(names), 'transaction')} aborted")


def _found(client: "Client", names: list[str]) -> "list[Sink]":
    from ottla.client.exactly_once.sinks import find_sinks

    found: dict[str, Sink] = {}
    for name in dict.fromkeys(names):
        sinks = find_sinks(client, name)
        if not sinks:
            raise CommandError(f"no query whose id begins with {name!r} writes a topic exactly once")
        found |= {sink.name: sink for sink in sinks}
    return [*found.values()]


def _kind(sink: "Sink") -> str:
    return "per task" if sink.by_task else "per batch"


def _document(sink: "Sink", now: int) -> dict[str, object]:
    return {
        "query": sink.query_id,
        "topic": sink.topic,
        "ledger": sink.name,
        "transactions_per": "task" if sink.by_task else "batch",
        "last_batch": sink.last_batch,
        "open": len(sink.open_transactions),
        "transactions": [dict(zip(COLUMNS, _row(sink, each, now), strict=True)) for each in sink.transactions],
    }


def _row(sink: "Sink", state: "TransactionState", now: int) -> tuple[object, ...]:
    task = sink.task_of(state.transactional_id)
    return (
        state.transactional_id,
        sink.last_batch if task is None else sink.task_batches.get(task),
        hyphenate(state.state),
        state.producer_id,
        state.epoch,
        max(now - state.started_ms, 0) // 1000 if state.is_open else None,
        state.timeout_ms // 1000,
        [str(where) for where in state.partitions],
    )

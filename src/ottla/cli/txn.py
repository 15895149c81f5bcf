"""`ottla txn list|describe|find-hanging|abort`: transactions, and those that nobody will end.

A hanging transaction is open in a partition, but its coordinator does not know that it is: the last stable offset
stays where it began, and read_committed consumers see nothing behind it. The client library has none of these
questions, so they are asked over a connection of our own.
"""

import argparse
import time
from typing import Any

from ottla.cli.client import CommandClient, create_action_adder
from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.hanging import UNDECIDED, Hanging, abort_marker, find_hanging, open_producers
from ottla.cli.offset_ranges import time_ms
from ottla.cli.output import JSON, add_format_argument, hyphenated, show_json, show_table

STATES = ("empty", "ongoing", "prepare-commit", "prepare-abort", "complete-commit", "complete-abort", "dead")
LONGEST = "15m"
"""transaction.max.timeout.ms of a broker, unless it was changed: no transaction that anybody cares for is older."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    action = create_action_adder(parser)
    listing = action("list", "list transactional ids")
    listing.add_argument("--state", action="append", choices=STATES, default=[], help="only these; may be repeated")
    listing.add_argument("--producer-id", action="append", type=int, default=[], help="only its; may be repeated")
    listing.add_argument("--older-than", metavar="TIME", help="only transactions that are open for longer: 10m")
    listing.add_argument("--matching", metavar="REGEX", help="only ids like this")
    add_format_argument(listing)
    describe = action("describe", "show what a transactional id is doing")
    describe.add_argument("names", nargs="+", metavar="TRANSACTIONAL_ID")
    add_format_argument(describe)
    hanging = action("find-hanging", "find transactions that are open in a partition and nowhere else")
    hanging.add_argument("-t", "--topic", action="append", default=[], help="only there; may be repeated")
    hanging.add_argument("--older-than", default=LONGEST, metavar="TIME", help=f"(default: {LONGEST})")
    add_format_argument(hanging)
    abort = action("abort", "end a hanging transaction of a partition")
    abort.add_argument("topic", metavar="TOPIC")
    abort.add_argument("partition", type=int, metavar="PARTITION")
    abort.add_argument("--start-offset", type=int, required=True, help="where it began, as find-hanging tells")


def run(options: argparse.Namespace) -> int:
    from ottla.client.connection import Unreachable
    from ottla.errors import KafkaError

    actions = {"list": _list, "describe": _describe, "find-hanging": _find_hanging, "abort": _abort}
    try:
        actions[options.action](options)
    except Unreachable as error:
        raise CommandError(str(error)) from None
    except KafkaError as error:
        raise CommandError(error.message or error.code.name) from None
    return 0


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _camel(word: str) -> str:
    return "".join(part.capitalize() for part in word.split("-"))


def _checked(code: int, what: str) -> None:
    from ottla.errors import ErrorCode

    if code:
        raise CommandError(f"{what}: {ErrorCode(code).name}")


def _show(options: argparse.Namespace, columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    if options.format == JSON:
        show_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        show_table(columns, rows)


def _list(options: argparse.Namespace) -> None:
    from ottla.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

    client = CommandClient(options)
    now = _now_ms()
    request = ListTransactionsRequest(
        state_filters=[_camel(state) for state in options.state],
        producer_id_filters=options.producer_id,
        duration_filter=-1 if options.older_than is None else now - time_ms(options.older_than, now),
        transactional_id_pattern=options.matching,
    )
    rows = []
    for broker in sorted(client.brokers):
        with client.connection(broker) as connection:
            response: ListTransactionsResponse = connection.ask(request)
        _checked(response.error_code, "the list of transactions")
        for found in response.transaction_states:
            rows.append((found.transactional_id, broker, found.producer_id, hyphenated(found.transaction_state)))
    _show(options, ("transactional_id", "coordinator", "producer_id", "state"), sorted(rows))


def _describe(options: argparse.Namespace) -> None:
    from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest

    client = CommandClient(options)
    rows = []
    for name in dict.fromkeys(options.names):
        with client.coordinator("transaction", name) as connection:
            (found,) = connection.ask(DescribeTransactionsRequest(transactional_ids=[name])).transaction_states
        _checked(found.error_code, f"transactional id {name!r}")
        started = found.transaction_start_time_ms if found.transaction_state in UNDECIDED else -1
        rows.append(
            (
                name,
                found.producer_id,
                found.producer_epoch,
                hyphenated(found.transaction_state),
                found.transaction_timeout_ms,
                (_now_ms() - started) // 1000 if started >= 0 else None,
                [f"{topic.topic}-{number}" for topic in found.topics for number in topic.partitions],
            )
        )
    columns = ("transactional_id", "producer_id", "epoch", "state", "timeout_ms", "open_s", "partitions")
    _show(options, columns, rows)


def _find_hanging(options: argparse.Namespace) -> None:
    client = CommandClient(options)
    topics = options.topic or sorted(client.fetch_metadata().topics)
    now = _now_ms()
    found = find_hanging(client, topics, time_ms(options.older_than, now))
    rows: list[tuple[Any, ...]] = [
        (*hanging[:-2], (now - hanging.last_ms) // 1000, hanging.coordinator_epoch) for hanging in found
    ]
    columns = (*Hanging._fields[:-2], "silent_s", "coordinator_epoch")
    _show(options, columns, rows)


def _abort(options: argparse.Namespace) -> None:
    client = CommandClient(options)
    producers = open_producers(client, [options.topic], {options.partition})
    found = next((each for each in producers if each.start_offset == options.start_offset), None)
    place = f"{options.topic}-{options.partition}"
    if found is None:
        raise CommandError(f"{place}: no transaction that is open began at offset {options.start_offset}", USAGE_ERROR)
    _checked(abort_marker(client, found), place)
    print(f"{place}: the transaction of producer {found.producer_id} from offset {found.start_offset} on is aborted")

"""`ottla txn list|describe|find-hanging|abort`: transactions, and those that nobody will end.

A hanging transaction is open in a partition, but its coordinator does not know it, so nobody will end it. The last
stable offset stays where the transaction began, and read_committed consumers see nothing behind it. confluent-kafka
has none of these requests, so they go through Ottla's own client.
"""

import argparse
import time
from typing import TYPE_CHECKING, Any

from ottla.cli.client import create_action_adder, open_own_client
from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.hanging import find_leaders
from ottla.cli.numbers import INT64_MAX, int_between, parse_offset, parse_partition
from ottla.cli.offset_ranges import time_ms
from ottla.cli.output import add_format_argument, hyphenate, show_rows
from ottla.cli.suggestions import suggest

if TYPE_CHECKING:
    from ottla.client.client import Client

STATES = ("empty", "ongoing", "prepare-commit", "prepare-abort", "complete-commit", "complete-abort", "dead")
LONGEST = "15m"
"""The default of transaction.max.timeout.ms: the coordinator ends every older transaction that it knows."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    action = create_action_adder(parser)
    listing = action("list", "list transactional ids")
    listing.add_argument("--state", action="append", choices=STATES, default=[], help="only these; may be repeated")
    listing.add_argument(
        "--producer-id",
        action="append",
        type=int_between(0, INT64_MAX),
        default=[],
        help="only those of this producer; may be repeated",
    )
    listing.add_argument("--older-than", metavar="TIME", help="only transactions that are open for longer: 10m")
    listing.add_argument("--matching", metavar="REGEX", help="only ids that match")
    add_format_argument(listing)
    describe = action("describe", "show what a transactional id is doing")
    describe.add_argument("names", nargs="+", metavar="TRANSACTIONAL_ID")
    add_format_argument(describe)
    hanging = action("find-hanging", "find transactions that are open in a partition but unknown to their coordinator")
    hanging.add_argument("-t", "--topic", action="append", default=[], help="only in this topic; may be repeated")
    hanging.add_argument(
        "--older-than",
        default=LONGEST,
        metavar="TIME",
        help=f"whose producer has written nothing for this long (default: {LONGEST})",
    )
    add_format_argument(hanging)
    abort = action("abort", "end a hanging transaction of a partition")
    abort.add_argument("topic", metavar="TOPIC")
    abort.add_argument("partition", type=parse_partition, metavar="PARTITION")
    abort.add_argument(
        "--start-offset", type=parse_offset, required=True, help="where the transaction began, as find-hanging shows"
    )


def run(options: argparse.Namespace) -> int:
    actions = {"list": _list, "describe": _describe, "find-hanging": _find_hanging, "abort": _abort}
    actions[options.action](options)
    return 0


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _to_camel_case(word: str) -> str:
    return "".join(part.capitalize() for part in word.split("-"))


def _raise_for_error(code: int, what: str) -> None:
    from ottla.client.connection import name_error

    if code:
        raise CommandError(f"{what}: {name_error(code)}")


def _list(options: argparse.Namespace) -> None:
    from ottla.wire.messages.list_transactions import ListTransactionsRequest

    now = _now_ms()
    request = ListTransactionsRequest(
        state_filters=[_to_camel_case(state) for state in options.state],
        producer_id_filters=options.producer_id,
        duration_filter=-1 if options.older_than is None else now - time_ms(options.older_than, now),
        transactional_id_pattern=options.matching,
    )
    rows = []
    with open_own_client(options) as own:
        answers = own.ask_each(request)
    for broker, answer in answers.items():
        _raise_for_error(answer.error_code, "cannot list transactions")
        for found in answer.transaction_states:
            rows.append((found.transactional_id, broker, found.producer_id, hyphenate(found.transaction_state)))
    show_rows(options.format, ("transactional_id", "coordinator", "producer_id", "state"), sorted(rows))


def _describe(options: argparse.Namespace) -> None:
    from ottla.client.hanging_transactions import UNDECIDED
    from ottla.errors import ErrorCode
    from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest

    rows = []
    with open_own_client(options) as own:
        requests = {name: DescribeTransactionsRequest(transactional_ids=[name]) for name in options.names}
        answers = {name: own.ask_coordinator("transaction", name, request) for name, request in requests.items()}
        missing = [each for each in answers.values() if each.transaction_states[0].error_code]
        known = _list_transactional_ids(own) if missing else []
    for name, answer in answers.items():
        (found,) = answer.transaction_states
        if found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            hint = suggest(name, known)
            raise CommandError(f"transactional id {name!r}: {ErrorCode.TRANSACTIONAL_ID_NOT_FOUND.name}{hint}")
        _raise_for_error(found.error_code, f"transactional id {name!r}")
        started = found.transaction_start_time_ms if found.transaction_state in UNDECIDED else -1
        rows.append(
            (
                name,
                found.producer_id,
                found.producer_epoch,
                hyphenate(found.transaction_state),
                found.transaction_timeout_ms,
                (_now_ms() - started) // 1000 if started >= 0 else None,
                [f"{topic.topic}-{number}" for topic in found.topics for number in topic.partitions],
            )
        )
    columns = ("transactional_id", "producer_id", "epoch", "state", "timeout_ms", "open_s", "partitions")
    show_rows(options.format, columns, rows)


def _list_transactional_ids(own: "Client") -> list[str]:
    from ottla.wire.messages.list_transactions import ListTransactionsRequest

    answers = own.ask_each(ListTransactionsRequest()).values()
    return [each.transactional_id for answer in answers for each in answer.transaction_states]


def _find_hanging(options: argparse.Namespace) -> None:
    from ottla.client.hanging_transactions import OpenTransaction, find_hanging

    with open_own_client(options) as own:
        topics = options.topic or sorted(topic.name or "" for topic in own.fetch_topics())
        now = _now_ms()
        before_ms = time_ms(options.older_than, now)
        found = find_hanging(own, find_leaders(own, topics), before_ms)
    rows: list[tuple[Any, ...]] = [
        (*hanging[:-2], (now - hanging.last_ms) // 1000, hanging.coordinator_epoch) for hanging in found
    ]
    columns = (*OpenTransaction._fields[:-2], "silent_s", "coordinator_epoch")
    show_rows(options.format, columns, rows)


def _abort(options: argparse.Namespace) -> None:
    from ottla.client.hanging_transactions import list_open_transactions, write_abort_marker

    where = f"{options.topic}-{options.partition}"
    with open_own_client(options) as own:
        transactions = list_open_transactions(own, find_leaders(own, [options.topic], {options.partition}))
        found = next((each for each in transactions if each.start_offset == options.start_offset), None)
        if found is None:
            raise CommandError(f"{where}: no open transaction began at offset {options.start_offset}", USAGE_ERROR)
        _raise_for_error(write_abort_marker(own, found), where)
    print(f"{where}: the transaction of producer {found.producer_id} from offset {found.start_offset} on is aborted")

"""`ottla kafka transactions`: kafka-transactions."""

import argparse
import time
from typing import TYPE_CHECKING

from ottla.cli.client import open_own_client, require_text
from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.hanging import find_leaders
from ottla.cli.kafka.flags import add_client_flags, explain_code
from ottla.cli.kafka.tables import show_tabbed
from ottla.cli.numbers import INT64_MAX, int_between, parse_broker_id, parse_offset, parse_partition

if TYPE_CHECKING:
    from ottla.client.client import Client

LONGEST_MINUTES = 15
"""transaction.max.timeout.ms: the coordinator ends every older transaction that it knows."""

parse_producer = int_between(0, INT64_MAX)


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_client_flags(parser)
    actions = parser.add_subparsers(dest="action", required=True, metavar="COMMAND")
    listing = actions.add_parser("list", help="list transactions")
    listing.add_argument("--duration-filter", type=parse_producer, default=-1, metavar="MS", help="only older ones")
    listing.add_argument("--transactional-id-pattern", metavar="REGEX", help="only ids that match")
    describe = actions.add_parser("describe", help="show the state of a transactional id")
    describe.add_argument("--transactional-id", required=True, metavar="ID")
    producers = actions.add_parser("describe-producers", help="show the producers of a partition")
    producers.add_argument("--broker-id", type=parse_broker_id, help="ask this broker (default: the leader)")
    producers.add_argument("--topic", required=True)
    producers.add_argument("--partition", type=parse_partition, required=True)
    abort = actions.add_parser("abort", help="end a hanging transaction")
    abort.add_argument("--topic", required=True)
    abort.add_argument("--partition", type=parse_partition, required=True)
    abort.add_argument("--start-offset", type=parse_offset, help="where the transaction began")
    abort.add_argument("--producer-id", type=parse_producer)
    abort.add_argument("--producer-epoch", type=parse_producer)
    abort.add_argument("--coordinator-epoch", type=int_between(-1, INT64_MAX))
    hanging = actions.add_parser("find-hanging", help="find hanging transactions")
    hanging.add_argument("--broker-id", type=parse_broker_id, help="only in partitions that this broker leads")
    hanging.add_argument("--max-transaction-timeout", type=parse_producer, default=LONGEST_MINUTES, metavar="MINUTES")
    hanging.add_argument("--topic")
    hanging.add_argument("--partition", type=parse_partition)


def run(options: argparse.Namespace) -> None:
    require_text(*filter(None, (getattr(options, "topic", ""), getattr(options, "transactional_id", ""))))
    actions = {
        "list": _list,
        "describe": _describe,
        "describe-producers": _describe_producers,
        "find-hanging": _find_hanging,
        "abort": _abort,
    }
    with open_own_client(options) as own:
        actions[options.action](own, options)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _list(client: "Client", options: argparse.Namespace) -> None:
    from ottla.wire.messages.list_transactions import ListTransactionsRequest

    request = ListTransactionsRequest(
        duration_filter=options.duration_filter, transactional_id_pattern=options.transactional_id_pattern
    )
    rows = []
    for broker, answer in client.ask_each(request).items():
        if answer.error_code:
            raise CommandError(f"cannot list transactions: {explain_code(answer.error_code, None)}")
        for each in answer.transaction_states:
            rows.append((each.transactional_id, broker, each.producer_id, each.transaction_state))
    show_tabbed(("TransactionalId", "Coordinator", "ProducerId", "TransactionState"), sorted(rows))


def _describe(client: "Client", options: argparse.Namespace) -> None:
    from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest

    name = options.transactional_id
    coordinator = client.retry(lambda: client.find_coordinator("transaction", name))
    answer = client.ask_coordinator("transaction", name, DescribeTransactionsRequest(transactional_ids=[name]))
    (found,) = answer.transaction_states
    if found.error_code:
        raise CommandError(f"transactional id {name!r}: {explain_code(found.error_code, None)}")
    began = found.transaction_start_time_ms
    partitions = sorted(f"{topic.topic}-{number}" for topic in found.topics for number in topic.partitions)
    row = {
        "CoordinatorId": coordinator,
        "TransactionalId": name,
        "ProducerId": found.producer_id,
        "ProducerEpoch": found.producer_epoch,
        "TransactionState": found.transaction_state,
        "TransactionTimeoutMs": found.transaction_timeout_ms,
        "CurrentTransactionStartTimeMs": began if began >= 0 else "None",
        "TransactionDurationMs": _now_ms() - began if began >= 0 else "None",
        "TopicPartitions": ",".join(partitions),
    }
    show_tabbed(tuple(row), [tuple(row.values())])


def _describe_producers(client: "Client", options: argparse.Namespace) -> None:
    from ottla.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest

    asked = TopicRequest(name=options.topic, partition_indexes=[options.partition])
    request = DescribeProducersRequest(topics=[asked])
    if options.broker_id is not None:
        answer = client.ask_broker(options.broker_id, request)
    else:
        answer = client.ask_leader(options.topic, options.partition, request)
    found = answer.topics[0].partitions[0]
    if found.error_code:
        raise CommandError(
            f"{options.topic}-{options.partition}: {explain_code(found.error_code, found.error_message)}"
        )
    rows = [
        (
            each.producer_id,
            each.producer_epoch,
            each.coordinator_epoch,
            each.last_sequence,
            each.last_timestamp,
            each.current_txn_start_offset if each.current_txn_start_offset >= 0 else "None",
        )
        for each in sorted(found.active_producers, key=lambda each: each.producer_id)
    ]
    titles = ("ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence", "LastTimestamp")
    show_tabbed((*titles, "CurrentTransactionStartOffset"), rows)


def _find_hanging(client: "Client", options: argparse.Namespace) -> None:
    from ottla.client.hanging_transactions import find_hanging

    if options.topic is None and options.broker_id is None:
        raise CommandError("find-hanging: give --topic or --broker-id", USAGE_ERROR)
    if options.partition is not None and options.topic is None:
        raise CommandError("find-hanging: --partition needs --topic", USAGE_ERROR)
    names = [options.topic] if options.topic is not None else sorted(each.name or "" for each in client.fetch_topics())
    led = find_leaders(client, names, () if options.partition is None else {options.partition})
    if options.broker_id is not None:
        led = {broker: partitions for broker, partitions in led.items() if broker == options.broker_id}
    now = _now_ms()
    rows = [
        (
            *(each.topic, each.partition, each.producer_id, each.producer_epoch, each.coordinator_epoch),
            *(each.start_offset, each.last_ms, (now - each.last_ms) // 60_000),
        )
        for each in find_hanging(client, led, now - options.max_transaction_timeout * 60_000)
    ]
    titles = ("Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset")
    show_tabbed((*titles, "LastTimestamp", "Duration(min)"), rows)


def _abort(client: "Client", options: argparse.Namespace) -> None:
    from ottla.client.hanging_transactions import list_open_transactions, write_abort_marker

    if options.start_offset is None and (options.producer_id is None or options.producer_epoch is None):
        raise CommandError("abort: give --start-offset, or --producer-id and --producer-epoch", USAGE_ERROR)
    found = [
        each
        for each in list_open_transactions(client, find_leaders(client, [options.topic], {options.partition}))
        if options.start_offset in (None, each.start_offset)
        and options.producer_id in (None, each.producer_id)
        and options.producer_epoch in (None, each.producer_epoch)
    ]
    where = f"{options.topic}-{options.partition}"
    if not found:
        raise CommandError(f"{where}: no open transaction fits the flags")
    code = write_abort_marker(client, found[0])
    if code:
        raise CommandError(f"{where}: {explain_code(code, None)}")

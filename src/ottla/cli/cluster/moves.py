"""`ottla cluster reassign` and `ottla cluster drain`: replicas move to other brokers while clients go on."""

import argparse
import sys
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ottla.cli.client import open_own_client
from ottla.cli.cluster import throttle
from ottla.cli.cluster.actions import Actions, add_action
from ottla.cli.cluster.directories import mark_cordoned
from ottla.cli.cluster.overview import (
    Overview,
    PartitionState,
    explain_code,
    join_first,
    list_reassignments,
    observe,
    parse_broker_ids,
    raise_for_error,
    require_brokers,
)
from ottla.cli.cluster.plans import (
    Plan,
    leave_out_unchanged,
    plan_drain,
    plan_same_replicas,
    plan_spread,
    read_plan,
    write_plan,
)
from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.numbers import parse_broker_id, parse_partition
from ottla.cli.output import add_format_argument, counted, show_json, show_rows
from ottla.cli.plan_files import parse_json, read_json
from ottla.cli.progress import ProgressLine
from ottla.cli.suggestions import suggest
from ottla.topic_partition import TopicPartition

if TYPE_CHECKING:
    from ottla.client.client import Client

LOOK_S = 0.5
"""Pause between two looks at replicas that are moving."""


def add_actions(actions: Actions) -> None:
    reassign = add_action(actions, "reassign", "move replicas to other brokers", _reassign)
    what = reassign.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--plan", metavar="FILE", help="a plan in the JSON format of kafka-reassign-partitions; - is stdin"
    )
    what.add_argument(
        "--to", type=parse_broker_ids, metavar="IDS", help="exactly these replicas, preferred leader first"
    )
    what.add_argument(
        "--over", type=parse_broker_ids, metavar="IDS", help="spread the partitions evenly over these brokers"
    )
    what.add_argument("--cancel", action="store_true", help="end moves that are under way and go back")
    what.add_argument("--list", action="store_true", help="show the moves that are under way")
    reassign.add_argument("-t", "--topic", action="append", default=[], help="topics to move; may be repeated")
    reassign.add_argument(
        "-p", "--partition", type=parse_partition, action="append", help="only these partitions of the topic"
    )
    _add_move_arguments(reassign)
    drain = add_action(actions, "drain", "move everything away from a broker, before it is removed", _drain)
    drain.add_argument("broker", type=parse_broker_id, metavar="BROKER")
    _add_move_arguments(drain)


def _add_move_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--throttle", type=throttle.parse_rate, metavar="RATE", help="bytes a second, or 50M; needs waiting"
    )
    parser.add_argument("--no-wait", action="store_true", help="return when the move has begun")
    parser.add_argument("--dry-run", action="store_true", help="print the plan and change nothing")
    add_format_argument(parser)


def _reassign(options: argparse.Namespace) -> int:
    if options.partition and len(options.topic) != 1:
        raise CommandError("--partition needs exactly one --topic", USAGE_ERROR)
    if (options.to or options.over) and not options.topic:
        raise CommandError(f"{'--to' if options.to else '--over'} needs --topic", USAGE_ERROR)
    with open_own_client(options) as own:
        if options.list:
            return _list(own, options)
        overview = observe(own, settings=False)
        if options.cancel:
            return _cancel(own, overview, options)
        return _move(own, overview, _make_plan(overview, options), options)


def _make_plan(overview: Overview, options: argparse.Namespace) -> Plan:
    if options.plan is not None:
        return _read_plan_file(options.plan)
    partitions = _choose(overview, options.topic, options.partition)
    require_brokers(overview, options.to or options.over)
    if options.to:
        return plan_same_replicas(partitions, options.to)
    return plan_spread(partitions, options.over)


def _read_plan_file(path: str) -> Plan:
    if path != "-":
        return read_plan(read_json(path), path)
    source = "standard input"
    try:
        return read_plan(parse_json(sys.stdin.read(), source), source)
    except UnicodeDecodeError:
        raise CommandError(f"{source}: not UTF-8 text", USAGE_ERROR) from None


def _choose(overview: Overview, topics: Sequence[str], numbers: Sequence[int] | None) -> list[PartitionState]:
    known = {partition.where.topic for partition in overview.partitions}
    for topic in topics:
        if topic not in known:
            raise CommandError(f"there is no topic {topic!r}{suggest(topic, known)}")
    chosen = [
        partition
        for partition in overview.partitions
        if partition.where.topic in topics and (not numbers or partition.where.partition in numbers)
    ]
    missing = sorted(set(numbers or ()) - {partition.where.partition for partition in chosen})
    if missing:
        raise CommandError(f"topic {topics[0]!r} has no partition {missing[0]}")
    return chosen


def _drain(options: argparse.Namespace) -> int:
    with open_own_client(options) as own:
        overview = mark_cordoned(own, observe(own, settings=False))
        # A broker that was unregistered may still be assigned replicas.
        assigned = {broker for partition in overview.partitions for broker in partition.replicas}
        if options.broker not in assigned.union(broker.id for broker in overview.brokers):
            known = ", ".join(str(broker.id) for broker in overview.brokers)
            raise CommandError(f"there is no broker {options.broker}, only {known}")
        return _move(own, overview, plan_drain(overview, options.broker), options)


def _move(own: "Client", overview: Overview, wanted: Plan, options: argparse.Namespace) -> int:
    known = {partition.where: partition for partition in overview.partitions}
    plan = leave_out_unchanged(wanted, known)
    if options.dry_run:
        show_json(write_plan(plan))
        return 0
    if not plan:
        print("nothing to move")
        return 0
    if options.throttle is not None and options.no_wait:
        raise CommandError("--throttle needs waiting: the limit is removed when the move has ended", USAGE_ERROR)
    brokers = [each.id for each in overview.alive()]
    try:
        if options.throttle is not None:
            throttle.begin(own, brokers, plan, known, options.throttle)
        alter_assignments(own, plan)
        if options.no_wait:
            print(f"{counted(len(plan), 'partition')} moving; ottla cluster reassign --list shows how far they are")
            return 0
        _wait(own, plan)
    finally:
        if options.throttle is not None:
            throttle.end(own, brokers, plan)
    print(f"{counted(len(plan), 'partition')} moved")
    return 0


def alter_assignments(own: "Client", plan: "Plan | dict[TopicPartition, None]") -> None:
    """Begin moves; None as replicas cancels one."""
    from ottla.wire.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
        ReassignablePartition,
        ReassignableTopic,
    )

    topics: dict[str, ReassignableTopic] = {}
    for (topic, number), replicas in sorted(plan.items()):
        asked = ReassignablePartition(partition_index=number, replicas=None if replicas is None else list(replicas))
        topics.setdefault(topic, ReassignableTopic(name=topic)).partitions.append(asked)
    answer = own.connect_any().ask(AlterPartitionReassignmentsRequest(topics=list(topics.values()), timeout_ms=30_000))
    raise_for_error(answer, "nothing was moved")
    failures = [
        reason if reason.startswith(where) else f"{where}: {reason}"
        for found in answer.responses
        for each in found.partitions
        if each.error_code
        for where in [f"{found.name}-{each.partition_index}"]
        for reason in [explain_code(each.error_code, each.error_message)]
    ]
    if failures:
        count = f"{len(failures)} of {counted(len(plan), 'partition')} refused: " if len(plan) > 1 else ""
        raise CommandError(f"{count}{join_first(failures)}")


def _wait(own: "Client", plan: Plan) -> None:
    """Wait until no partition of the plan moves any more, with a bar or with a line whenever the number changes."""
    shown = -1
    with ProgressLine("moving", len(plan)) as progress:
        while moving := _count_moving(own, plan):
            left = f"{moving} of {counted(len(plan), 'partition')} still moving"
            progress.show(len(plan) - moving, left)
            if moving != shown and not progress.is_shown:
                print(left, file=sys.stderr, flush=True)
                shown = moving
            time.sleep(LOOK_S)


def _count_moving(own: "Client", plan: Iterable[TopicPartition]) -> int:
    wanted = set(plan)
    return sum(each.where in wanted for each in list_reassignments(own))


def _list(own: "Client", options: argparse.Namespace) -> int:
    rows = [
        (str(each.where), list(each.replicas), list(each.adding), list(each.removing))
        for each in list_reassignments(own)
        if not options.topic or each.where.topic in options.topic
    ]
    show_rows(options.format, ("partition", "replicas", "adding", "removing"), rows)
    return 0


def _cancel(own: "Client", overview: Overview, options: argparse.Namespace) -> int:
    under_way = [
        each.where
        for each in overview.reassignments
        if (not options.topic or each.where.topic in options.topic)
        and (not options.partition or each.where.partition in options.partition)
    ]
    if under_way and not options.dry_run:
        alter_assignments(own, dict.fromkeys(under_way))
    print(f"{counted(len(under_way), 'move')} cancelled")
    return 0

"""`ottla cluster reassign` and `ottla cluster drain`: replicas move to other brokers while clients go on."""

import argparse
import sys
from typing import TYPE_CHECKING

from ottla.cli.client import open_own_client
from ottla.cli.cluster import throttle
from ottla.cli.cluster.actions import Actions, add_action
from ottla.cli.cluster.directories import mark_cordoned, measure_replicas
from ottla.cli.cluster.execution import carry_out, explain_refusals, request_moves
from ottla.cli.cluster.factors import plan_factor
from ottla.cli.cluster.overview import (
    Overview,
    PartitionState,
    Reassignment,
    observe,
    parse_broker_ids,
    require_brokers,
)
from ottla.cli.cluster.plans import Plan, plan_drain, plan_same_replicas, plan_spread, read_plan
from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.numbers import INT16_MAX, int_between, parse_broker_id, parse_partition
from ottla.cli.output import add_format_argument, counted, show_rows
from ottla.cli.plan_files import parse_json, read_json
from ottla.cli.suggestions import suggest

if TYPE_CHECKING:
    from ottla.client.client import Client

COLUMNS = ("partition", "replicas", "adding", "removing", "bytes_added", "bytes_of_leader")
"""`bytes_added`: how much each of the replicas that are being added has. None if its broker does not say."""


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
    what.add_argument("--list", action="store_true", help="show the moves that are under way, and how far they are")
    what.add_argument("--unthrottle", action="store_true", help="remove the limits that --throttle has set")
    reassign.add_argument(
        "--replicas",
        type=int_between(1, INT16_MAX),
        metavar="N",
        help="with --over: so many replicas of each partition; those that are on these brokers stay",
    )
    reassign.add_argument(
        "--all-topics", action="store_true", help="with --over and --to: every topic, internal ones too"
    )
    reassign.add_argument("-t", "--topic", action="append", default=[], help="only this topic; may be repeated")
    reassign.add_argument(
        "-p", "--partition", type=parse_partition, action="append", help="only this partition; may be repeated"
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
    _check_options(options)
    with open_own_client(options) as own:
        overview = observe(own, settings=False)
        if options.list:
            return _list(own, overview, options)
        if options.cancel:
            return _cancel(own, overview, options)
        if options.unthrottle:
            return _unthrottle(own, overview, options)
        return carry_out(own, overview, _make_plan(overview, options), options)


def _check_options(options: argparse.Namespace) -> None:
    """Refuse options that would have no effect together."""
    if (options.plan is not None or options.unthrottle) and options.topic:
        name = "--plan" if options.plan is not None else "--unthrottle"
        raise CommandError(f"{name} cannot be limited to a --topic", USAGE_ERROR)
    if options.partition and len(options.topic) != 1:
        raise CommandError("--partition needs exactly one --topic", USAGE_ERROR)
    if (options.to or options.over) and bool(options.topic) == options.all_topics:
        raise CommandError(f"{'--to' if options.to else '--over'} needs --topic or --all-topics", USAGE_ERROR)
    if options.all_topics and not (options.to or options.over):
        raise CommandError("--all-topics goes with --to and --over", USAGE_ERROR)
    if options.replicas is not None and not options.over:
        raise CommandError("--replicas goes with --over, which says where the replicas may be", USAGE_ERROR)
    if options.list or options.cancel or options.unthrottle:
        for name, is_given in (("--throttle", options.throttle is not None), ("--no-wait", options.no_wait)):
            if is_given:
                raise CommandError(f"{name} is for moves that begin: it goes with --plan, --to and --over", USAGE_ERROR)
    if options.list and options.dry_run:
        raise CommandError("--list changes nothing, with or without --dry-run", USAGE_ERROR)


def _make_plan(overview: Overview, options: argparse.Namespace) -> Plan:
    if options.plan is not None:
        return _read_plan_file(options.plan)
    partitions = overview.partitions
    if not options.all_topics:
        partitions = _choose(overview, options.topic, options.partition)
    require_brokers(overview, options.to or options.over)
    if options.to:
        return plan_same_replicas(partitions, options.to)
    if options.replicas is not None:
        return plan_factor(overview, partitions, options.over, options.replicas)
    return plan_spread(partitions, options.over)


def _read_plan_file(path: str) -> Plan:
    if path != "-":
        return read_plan(read_json(path), path)
    source = "standard input"
    try:
        return read_plan(parse_json(sys.stdin.read(), source), source)
    except UnicodeDecodeError:
        raise CommandError(f"{source}: not UTF-8 text", USAGE_ERROR) from None


def _choose(overview: Overview, topics: list[str], numbers: list[int] | None) -> list[PartitionState]:
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
        return carry_out(own, overview, plan_drain(overview, options.broker), options)


def _choose_moving(overview: Overview, options: argparse.Namespace) -> list[Reassignment]:
    """The moves that are under way: all of them, or those of the topics and partitions that the options name."""
    if not options.topic:
        return overview.reassignments
    chosen = {partition.where for partition in _choose(overview, options.topic, options.partition)}
    return [each for each in overview.reassignments if each.where in chosen]


def _list(own: "Client", overview: Overview, options: argparse.Namespace) -> int:
    moving = _choose_moving(overview, options)
    leaders = {partition.where: partition.leader for partition in overview.partitions}
    brokers = {broker for each in moving for broker in (*each.adding, leaders.get(each.where, -1))}
    alive = {broker.id for broker in overview.alive()}
    sizes = measure_replicas(own, sorted(brokers & alive), [each.where for each in moving]) if moving else {}
    rows = [
        (
            str(each.where),
            list(each.replicas),
            list(each.adding),
            list(each.removing),
            [sizes.get((broker, each.where)) for broker in each.adding],
            sizes.get((leaders.get(each.where, -1), each.where)),
        )
        for each in moving
    ]
    show_rows(options.format, COLUMNS, rows)
    return 0


def _cancel(own: "Client", overview: Overview, options: argparse.Namespace) -> int:
    under_way = [each.where for each in _choose_moving(overview, options)]
    if options.dry_run:
        print(f"{counted(len(under_way), 'move')} would be cancelled")
        for where in under_way:
            print(f"  {where}")
        return 0
    refused = request_moves(own, dict.fromkeys(under_way)) if under_way else {}
    print(f"{counted(len(under_way) - len(refused), 'move')} cancelled", flush=True)
    failures = [explain_refusals(refused, len(under_way))] if refused else []
    failures += throttle.remove_finished_limits(own, overview)
    if failures:
        raise CommandError("; ".join(failures))
    return 0


def _unthrottle(own: "Client", overview: Overview, options: argparse.Namespace) -> int:
    topics = {where.topic for where in throttle.list_limited_partitions(own, overview)}
    brokers = [broker.id for broker in overview.alive()]
    where = f"{counted(len(brokers), 'broker')} and {counted(len(topics), 'topic')}"
    if options.dry_run:
        print(f"the limit would be removed from {where}")
        return 0
    throttle.remove_limits(own, brokers, topics)
    print(f"the limit is removed from {where}")
    return 0

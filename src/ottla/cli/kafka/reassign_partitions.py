"""`ottla kafka reassign-partitions`: kafka-reassign-partitions. Partitions move between brokers, not directories."""

import argparse
import json
from typing import TYPE_CHECKING

from ottla.cli.client import open_own_client
from ottla.cli.cluster import throttle
from ottla.cli.cluster.execution import explain_refusals, request_moves
from ottla.cli.cluster.overview import Overview, list_reassignments, observe, parse_broker_ids, require_brokers
from ottla.cli.cluster.plans import Plan, plan_spread, read_plan
from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.kafka.flags import add_client_flags, add_switches, choose_action, require
from ottla.cli.numbers import INT64_MAX, int_between, parse_count
from ottla.cli.output import counted
from ottla.cli.plan_files import read_json
from ottla.topic_partition import TopicPartition

if TYPE_CHECKING:
    from ottla.client.client import Client

ACTIONS = ("generate", "execute", "verify", "cancel", "list")
NO_LIMIT = -1


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_client_flags(parser)
    add_switches(
        parser,
        [
            ("--generate", "propose a plan for topics"),
            ("--execute", "begin the moves of a plan"),
            ("--verify", "show how far a plan is"),
            ("--cancel", "end the moves of a plan"),
            ("--list", "list moves that are under way"),
            ("--additional", "begin moves although others are under way"),
            ("--preserve-throttles", "keep limits of rates"),
            ("--disable-rack-aware", "has no effect: plans do not look at racks"),
            ("--disallow-replication-factor-change", "refuse a plan that changes the number of replicas"),
        ],
    )
    parser.add_argument("--reassignment-json-file", metavar="FILE", help="a plan")
    parser.add_argument("--topics-to-move-json-file", metavar="FILE", help='{"topics": [{"topic": "a"}], "version": 1}')
    parser.add_argument("--broker-list", type=parse_broker_ids, metavar="0,1", help="where topics move to")
    parser.add_argument(
        "--throttle", type=int_between(NO_LIMIT, INT64_MAX), default=NO_LIMIT, metavar="BYTES", help="bytes a second"
    )
    parser.add_argument("--timeout", type=parse_count, metavar="MS", help="has no effect")


def run(options: argparse.Namespace) -> None:
    action = choose_action(options, ACTIONS)
    plan: Plan = {}
    if action == "generate":
        require(options, "topics-to-move-json-file", "broker-list")
    elif action != "list":
        require(options, "reassignment-json-file")
        path = options.reassignment_json_file
        plan = read_plan(read_json(path), path)
    with open_own_client(options) as own:
        if action == "list":
            _list(own)
            return
        overview = observe(own, settings=False)
        if action == "generate":
            _generate(overview, options)
        elif action == "execute":
            _execute(own, overview, plan, options)
        elif action == "verify":
            _verify(own, overview, plan, options)
        else:
            _cancel(own, overview, plan, options)


def _write(plan: Plan, directory: str) -> str:
    entries = [
        {"topic": topic, "partition": number, "replicas": list(replicas), "log_dirs": [directory] * len(replicas)}
        for (topic, number), replicas in sorted(plan.items())
    ]
    return json.dumps({"version": 1, "partitions": entries}, separators=(",", ":"))


def _current(overview: Overview, partitions: "Plan | list[TopicPartition]") -> Plan:
    known = {each.where: each.replicas for each in overview.partitions}
    if missing := [where for where in partitions if where not in known]:
        raise CommandError(f"there is no partition {missing[0]}")
    return {where: known[where] for where in partitions}


def _generate(overview: Overview, options: argparse.Namespace) -> None:
    path = options.topics_to_move_json_file
    document = read_json(path)
    try:
        topics = {entry["topic"] for entry in document["topics"]}
    except (KeyError, TypeError):
        raise CommandError(f"{path}: there is no list of topics", USAGE_ERROR) from None
    require_brokers(overview, options.broker_list)
    chosen = [each for each in overview.partitions if each.where.topic in topics]
    if missing := topics - {each.where.topic for each in chosen}:
        raise CommandError(f"there is no topic {', '.join(map(repr, sorted(map(str, missing))))}")
    print("Current partition replica assignment")
    print(_write({each.where: each.replicas for each in chosen}, "any"))
    print("\nProposed partition reassignment configuration")
    print(_write(plan_spread(chosen, options.broker_list), "any"))


def _execute(own: "Client", overview: Overview, plan: Plan, options: argparse.Namespace) -> None:
    current = _current(overview, plan)
    require_brokers(overview, {broker for replicas in plan.values() for broker in replicas})
    if overview.reassignments and not options.additional:
        raise CommandError("other moves are under way; --additional begins these beside them")
    if options.disallow_replication_factor_change:
        for where, replicas in plan.items():
            if len(replicas) != len(current[where]):
                has = counted(len(current[where]), "replica")
                raise CommandError(f"{where} has {has}, and the plan {len(replicas)}")
    print(f"Current partition replica assignment\n\n{_write(current, 'any')}\n")
    print("Save this to use as the --reassignment-json-file option during rollback")
    if options.throttle > 0:
        known = {each.where: each for each in overview.partitions}
        throttle.set_limits(own, [each.id for each in overview.alive()], plan, known, options.throttle)
    _request(own, plan)
    print(f"Successfully started partition reassignment{'s' * (len(plan) != 1)} for {_join(plan)}")


def _request(own: "Client", plan: "Plan | dict[TopicPartition, None]") -> None:
    if refused := request_moves(own, plan):
        raise CommandError(explain_refusals(refused, len(plan)))


def _join(plan: Plan) -> str:
    return ",".join(str(where) for where in sorted(plan))


def _verify(own: "Client", overview: Overview, plan: Plan, options: argparse.Namespace) -> None:
    current = _current(overview, plan)
    moving = {each.where for each in overview.reassignments}
    print("Status of partition reassignment:")
    for where, replicas in sorted(plan.items()):
        if where in moving:
            print(f"Reassignment of partition {where} is still in progress.")
        elif current[where] == replicas:
            print(f"Reassignment of partition {where} is completed.")
        else:
            shown, wanted = (",".join(map(str, each)) for each in (current[where], replicas))
            print(
                f"There is no active reassignment of partition {where}, "
                f"but replica set is {shown} rather than {wanted}."
            )
    if not moving & set(plan):
        print()
        _clear(own, overview, plan, options)


def _clear(own: "Client", overview: Overview, plan: Plan, options: argparse.Namespace) -> None:
    if options.preserve_throttles:
        return
    brokers = [each.id for each in overview.alive()]
    print(f"Clearing broker-level throttles on broker{'s' * (len(brokers) != 1)} {','.join(map(str, brokers))}")
    topics = sorted({where.topic for where in plan})
    print(f"Clearing topic-level throttles on topic{'s' * (len(topics) != 1)} {','.join(topics)}")
    throttle.remove_limits(own, brokers, topics)


def _cancel(own: "Client", overview: Overview, plan: Plan, options: argparse.Namespace) -> None:
    moving = sorted({each.where for each in overview.reassignments} & set(plan))
    if moving:
        _request(own, dict.fromkeys(moving))
        names = ",".join(map(str, moving))
        print(f"Successfully cancelled partition reassignment{'s' * (len(moving) != 1)} for: {names}")
    else:
        print("None of the specified partition reassignments are active.")
    _clear(own, overview, plan, options)


def _list(own: "Client") -> None:
    found = list_reassignments(own)
    print("Current partition reassignments:" if found else "No partition reassignments found.")
    for each in found:
        facts = [f"replicas: {','.join(map(str, each.replicas))}."]
        if each.adding:
            facts.append(f"adding: {','.join(map(str, each.adding))}.")
        if each.removing:
            facts.append(f"removing: {','.join(map(str, each.removing))}.")
        print(f"{each.where}: {' '.join(facts)}")

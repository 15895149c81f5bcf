"""`ottla cluster status` and `ottla cluster brokers`."""

import argparse
from collections import Counter
from collections.abc import Iterable, Mapping

from ottla.cli.client import open_own_client
from ottla.cli.cluster.actions import Actions, add_action
from ottla.cli.cluster.directories import mark_cordoned
from ottla.cli.cluster.obstacles import explain_obstacles, mark_obstacles
from ottla.cli.cluster.overview import Candidates, Overview, PartitionState, fetch_candidates, name_brokers, observe
from ottla.cli.command_error import FAILURE
from ottla.cli.output import JSON, add_format_argument, counted, show_json, show_rows, show_table
from ottla.topic_partition import TopicPartition

ROWS_MAX = 50
"""Partitions in trouble that the table shows; JSON has all of them."""

COLUMNS = ("partition", "leader", "replicas", "in_sync", "eligible", "trouble")
"""`eligible`: replicas that may lead although they are not in sync (KIP-966). If one of them is started, an offline
partition has a leader again."""


def add_actions(actions: Actions) -> None:
    status = add_action(actions, "status", "show brokers, and partitions that are not as they should be", _show_status)
    status.add_argument("--check", action="store_true", help="exit with status 1 if anything is in trouble")
    add_format_argument(status)
    health = add_action(actions, "health", "the same, with exit status 1 if anything is in trouble", _show_status)
    health.set_defaults(check=True)
    add_format_argument(health)
    brokers = add_action(actions, "brokers", "list the brokers with their leaders and replicas", _list_brokers)
    add_format_argument(brokers)


def _show_status(options: argparse.Namespace) -> int:
    with open_own_client(options) as own:
        overview = mark_obstacles(own, mark_cordoned(own, observe(own)))
        troubled = [partition for partition in overview.partitions if _find_trouble(overview, partition)]
        candidates = fetch_candidates(own, {partition.where.topic for partition in troubled})
    rows = [_make_row(overview, partition, candidates) for partition in sort_by_trouble(overview, troubled)]
    if options.format == JSON:
        show_json(_make_document(overview, rows))
    else:
        print_summary(overview)
        if rows:
            print()
            show_table(COLUMNS, rows[:ROWS_MAX])
        if len(rows) > ROWS_MAX:
            print(f"... and {len(rows) - ROWS_MAX} more; --format json shows all")
    return FAILURE if options.check and (rows or explain_obstacles(overview)) else 0


def _find_trouble(overview: Overview, partition: PartitionState) -> list[str]:
    if partition.is_offline:
        return ["offline"]
    trouble = ["under-replicated"] if partition.is_under_replicated else []
    return [*trouble, "under-min-isr"] if overview.is_under_min_in_sync(partition) else trouble


def sort_by_trouble(overview: Overview, partitions: Iterable[PartitionState]) -> list[PartitionState]:
    """What cannot be read comes first, then what cannot be written to; of the same trouble, topics of users do."""

    def rank(partition: PartitionState) -> tuple[bool, bool, bool, TopicPartition]:
        is_under_min = overview.is_under_min_in_sync(partition)
        return (not partition.is_offline, not is_under_min, partition.is_internal, partition.where)

    return sorted(partitions, key=rank)


def _make_row(
    overview: Overview, partition: PartitionState, candidates: Mapping[TopicPartition, Candidates]
) -> tuple[object, ...]:
    leader = None if partition.is_offline else partition.leader
    trouble = _find_trouble(overview, partition)
    eligible, _ = candidates.get(partition.where, (None, None))
    return (str(partition.where), leader, list(partition.replicas), list(partition.in_sync), eligible, trouble)


def _count_partitions(overview: Overview) -> dict[str, int]:
    partitions = overview.partitions
    return {
        "partitions": len(partitions),
        "offline": sum(partition.is_offline for partition in partitions),
        "under_replicated": sum(partition.is_under_replicated for partition in partitions),
        "under_min_isr": sum(overview.is_under_min_in_sync(partition) for partition in partitions),
        "not_led_by_the_preferred_replica": sum(partition.leads_elsewhere for partition in partitions),
        "moving": len(overview.reassignments),
    }


def print_summary(overview: Overview) -> None:
    facts = [f"{counted(len(overview.alive()), 'broker')} alive"]
    fenced = [broker.id for broker in overview.brokers if broker.fenced]
    cordoned = [broker.id for broker in overview.brokers if broker.cordoned]
    facts += [f"{name_brokers(fenced)} fenced"] if fenced else []
    facts += [f"{name_brokers(cordoned)} cordoned"] if cordoned else []
    print(f"cluster {overview.cluster_id}: {'; '.join(facts)}")
    for name, number in _count_partitions(overview).items():
        print(f"  {name.replace('_', ' '):<34}{number:>8,}")
    for sentence in explain_obstacles(overview):
        print(sentence)


def _make_document(overview: Overview, rows: list[tuple[object, ...]]) -> dict[str, object]:
    return {
        "cluster_id": overview.cluster_id,
        "brokers": [broker._asdict() for broker in overview.brokers],
        **_count_partitions(overview),
        "in_trouble": [dict(zip(COLUMNS, row, strict=True)) for row in rows],
    }


def _list_brokers(options: argparse.Namespace) -> int:
    with open_own_client(options) as own:
        overview = mark_cordoned(own, observe(own, settings=False))
    leaders = Counter(partition.leader for partition in overview.partitions)
    replicas = Counter(broker for partition in overview.partitions for broker in partition.replicas)
    preferred = Counter(partition.replicas[0] for partition in overview.partitions)
    rows = [
        (
            broker.id,
            broker.address,
            broker.rack,
            "fenced" if broker.fenced else "cordoned" if broker.cordoned else "alive",
            leaders[broker.id],
            preferred[broker.id],
            replicas[broker.id],
        )
        for broker in overview.brokers
    ]
    show_rows(options.format, ("id", "address", "rack", "state", "leaders", "preferred_leaders", "replicas"), rows)
    return 0

"""Limits the rate at which replicas move, with Kafka's settings for it, and removes the limit afterwards."""

import re
import sys
from argparse import ArgumentTypeError
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.cli.cluster.overview import (
    Overview,
    PartitionState,
    explain_code,
    fetch_topic_settings,
    join_first,
    list_reassignments,
)
from ottla.cli.cluster.plans import Plan
from ottla.cli.command_error import CommandError
from ottla.cli.numbers import INT64_MAX
from ottla.errors import KafkaError
from ottla.topic_partition import TopicPartition

if TYPE_CHECKING:
    from ottla.client.client import Client

TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"

_LISTED = re.compile("([0-9]+):[0-9]+")
"""A partition and a broker, in the lists of limited replicas."""

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}


def parse_rate(text: str) -> int:
    """`50M` or `50000000` as bytes a second."""
    found = re.fullmatch(r"([0-9]{1,18})([KMG]?)", text.upper())
    rate = int(found[1]) * _UNITS[found[2]] if found is not None else 0
    if not 1 <= rate <= INT64_MAX:
        raise ArgumentTypeError(f"{text!r} is not a rate such as 50000000 or 50M")
    return rate


def set_limits(
    own: "Client",
    brokers: Sequence[int],
    plan: Plan,
    partitions: Mapping[TopicPartition, PartitionState],
    bytes_per_second: int,
) -> None:
    """Throttle what the plan moves: old replicas as leaders, new ones as followers. Limits of other moves stay."""
    topics = sorted({where.topic for where in plan})
    others = {where for where, state in partitions.items() if (state.adding or state.removing) and where not in plan}
    before = fetch_topic_settings(own, topics, [LEADERS, FOLLOWERS]) if others else {}
    lists: dict[str, dict[str, list[str]]] = {
        topic: {
            name: _select_listed(topic, before.get(topic, {}).get(name, ""), others) for name in (LEADERS, FOLLOWERS)
        }
        for topic in topics
    }
    for where, replicas in sorted(plan.items()):
        old = partitions[where].old_replicas
        lists[where.topic][LEADERS] += [f"{where.partition}:{broker}" for broker in old]
        lists[where.topic][FOLLOWERS] += [f"{where.partition}:{broker}" for broker in replicas if broker not in old]
    changes: dict[tuple[int, str], dict[str, str | None]] = {
        (BROKER, str(broker)): dict.fromkeys(RATES, str(bytes_per_second)) for broker in brokers
    }
    for topic, found in lists.items():
        changes[TOPIC, topic] = {name: ",".join(entries) for name, entries in found.items()}
    _change(own, changes)


def _select_listed(topic: str, value: str, partitions: Container[TopicPartition]) -> list[str]:
    """The entries of a list of limited replicas that are about these partitions."""
    return [found[0] for found in _LISTED.finditer(value) if TopicPartition(topic, int(found[1])) in partitions]


def remove_finished_limits(own: "Client", overview: Overview, *, has_set_rates: bool = False) -> None:
    """Remove the limits of moves that have ended. Those of other commands, whose moves go on, stay, which is said.

    Rates stay where no replica is listed, unless this command has set them: people set rates in advance.
    """
    limited = list_limited_partitions(own, overview)
    if not limited and not has_set_rates:
        return
    moving = limited.intersection(each.where for each in list_reassignments(own))
    if moving:
        names = join_first([str(where) for where in sorted(moving)])
        print(
            f"the limit of the rate stays for moves that are under way: {names}\n"
            "(ottla cluster reassign --unthrottle removes it)",
            file=sys.stderr,
        )
    # A broker has one rate for all topics.
    brokers = [] if moving else [broker.id for broker in overview.alive()]
    remove_limits(own, brokers, {where.topic for where in limited} - {where.topic for where in moving})


def list_limited_partitions(own: "Client", overview: Overview) -> set[TopicPartition]:
    """The partitions that `set_limits` has limited. `*`, which means all replicas, is set by people only."""
    topics = sorted({partition.where.topic for partition in overview.partitions})
    return {
        TopicPartition(topic, int(number))
        for topic, settings in fetch_topic_settings(own, topics, [LEADERS, FOLLOWERS]).items()
        for value in settings.values()
        for number in _LISTED.findall(value)
    }


def remove_limits(own: "Client", brokers: Iterable[int], topics: Iterable[str]) -> None:
    """Remove limits wherever they can be removed. CommandError names what is left, on brokers that are down."""
    from ottla.client.connection import Unreachable

    # Topics first: without their lists the rates limit nothing.
    changes: dict[tuple[int, str], dict[str, str | None]] = {
        (TOPIC, topic): {LEADERS: None, FOLLOWERS: None} for topic in sorted(topics)
    }
    changes |= {(BROKER, str(broker)): dict.fromkeys(RATES) for broker in brokers}
    failures = []
    for (kind, name), settings in changes.items():
        try:
            _change(own, {(kind, name): settings})
        except (CommandError, KafkaError, Unreachable) as error:
            where = f"{'topic' if kind == TOPIC else 'broker'} {name}"
            failures.append(f"{where} still has it ({error}): ottla config delete {where} {' '.join(settings)}")
    if failures:
        raise CommandError(f"the limit of the rate was not removed everywhere: {join_first(failures)}")


def _change(own: "Client", changes: Mapping[tuple[int, str], Mapping[str, str | None]]) -> None:
    from ottla.wire.messages.incremental_alter_configs import (
        AlterableConfig,
        AlterConfigsResource,
        IncrementalAlterConfigsRequest,
    )

    for (kind, name), settings in changes.items():
        resource = AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[
                AlterableConfig(name=key, config_operation=DELETE if value is None else SET, value=value)
                for key, value in settings.items()
            ],
        )
        request = IncrementalAlterConfigsRequest(resources=[resource])
        # A broker takes settings for itself only.
        answer = own.ask_broker(int(name), request) if kind == BROKER else own.ask_any(request)
        for result in answer.responses:
            if result.error_code:
                reason = explain_code(result.error_code, result.error_message)
                raise CommandError(f"cannot change the limit of the rate: {result.resource_name}: {reason}")

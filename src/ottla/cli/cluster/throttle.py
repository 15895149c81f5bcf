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
from ottla.cli.command_error import CommandError, explain_error
from ottla.cli.numbers import INT64_MAX
from ottla.errors import KafkaError
from ottla.topic_partition import TopicPartition

if TYPE_CHECKING:
    from ottla.client.client import Client

TOPIC, BROKER = 2, 4
_KINDS = {TOPIC: "topic", BROKER: "broker"}
SET, DELETE = 0, 1
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"

_LISTED = re.compile("([0-9]+):[0-9]+")
"""A partition and a broker, in the lists of limited replicas."""

_HOW_TO_REMOVE = "ottla cluster reassign --unthrottle removes it"
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
    """Throttle what the plan moves: old replicas as leaders, new ones as followers. Limits of other moves stay.

    CommandError names the first broker or topic that cannot be limited. Limits that were set before that one stay.
    """
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
    for (kind, name), settings in changes.items():
        try:
            _change(own, kind, name, settings)
        except CommandError as error:
            raise CommandError(f"nothing was moved: cannot limit {_KINDS[kind]} {name}: {error}") from None


def _select_listed(topic: str, value: str, partitions: Container[TopicPartition]) -> list[str]:
    """The entries of a list of limited replicas that are about these partitions."""
    return [found[0] for found in _LISTED.finditer(value) if TopicPartition(topic, int(found[1])) in partitions]


def remove_finished_limits(own: "Client", overview: Overview, *, has_set_rates: bool = False) -> list[str]:
    """Remove the limits of moves that have ended. Returns why some could not be removed, and how to remove them.

    Those of other commands, whose moves go on, stay, which is said. Rates stay where no replica is listed, unless this
    command has set them: people set rates in advance.
    """
    from ottla.client.connection import Unreachable

    try:
        limited = list_limited_partitions(own, overview)
        moving = limited.intersection(each.where for each in list_reassignments(own))
        if moving:
            names = join_first([str(where) for where in sorted(moving)])
            stays = f"the limit of the rate stays for moves that are under way: {names}"
            print(f"{stays}\n({_HOW_TO_REMOVE})", file=sys.stderr, flush=True)
        # A broker has one rate for all topics.
        are_rates_unused = not moving and (limited or has_set_rates)
        brokers = [broker.id for broker in overview.alive()] if are_rates_unused else []
        remove_limits(own, brokers, {where.topic for where in limited} - {where.topic for where in moving})
    except CommandError as error:
        return [str(error)]
    except (KafkaError, Unreachable) as error:
        return [f"the limit of the rate was not removed ({explain_error(error)}): {_HOW_TO_REMOVE}"]
    except KeyboardInterrupt:
        print(f"the limit of the rate was not removed everywhere: {_HOW_TO_REMOVE}", file=sys.stderr, flush=True)
        raise
    return []


def tell_earlier_limit(own: "Client", overview: Overview, going_on: Container[TopicPartition]) -> bool:
    """Whether an earlier command has limited some of these moves, which go on with its limit: then it is said."""
    limited = (
        [where for where in sorted(list_limited_partitions(own, overview)) if where in going_on] if going_on else []
    )
    if limited:
        names = join_first([str(where) for where in limited])
        told = f"these moves go on with the limit of the rate that an earlier command has set: {names}"
        print(f"{told}\n({_HOW_TO_REMOVE})", file=sys.stderr, flush=True)
    return bool(limited)


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
    """Remove limits wherever they can be removed. CommandError names what may be left, on brokers that are down."""
    # Topics first: without their lists the rates limit nothing.
    changes: dict[tuple[int, str], dict[str, str | None]] = {
        (TOPIC, topic): {LEADERS: None, FOLLOWERS: None} for topic in sorted(topics)
    }
    changes |= {(BROKER, str(broker)): dict.fromkeys(RATES) for broker in brokers}
    failures = []
    for (kind, name), settings in changes.items():
        try:
            _change(own, kind, name, settings)
        except CommandError as error:
            where = f"{_KINDS[kind]} {name}"
            failures.append(f"{where} may still have it ({error}): ottla config delete {where} {' '.join(settings)}")
    if failures:
        raise CommandError(f"the limit of the rate was not removed everywhere: {join_first(failures)}")


def _change(own: "Client", kind: int, name: str, settings: Mapping[str, str | None]) -> None:
    """Set what has a value, and delete the others. CommandError says why that failed."""
    from ottla.client.connection import Unreachable
    from ottla.wire.messages.incremental_alter_configs import (
        AlterableConfig,
        AlterConfigsResource,
        IncrementalAlterConfigsRequest,
    )

    resource = AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            AlterableConfig(name=key, config_operation=DELETE if value is None else SET, value=value)
            for key, value in settings.items()
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource])
    try:
        # A broker takes settings for itself only.
        answer = own.ask_broker(int(name), request) if kind == BROKER else own.ask_any(request)
    except (KafkaError, Unreachable) as error:
        raise CommandError(explain_error(error)) from None
    for result in answer.responses:
        if result.error_code:
            raise CommandError(explain_code(result.error_code, result.error_message))

"""Checks of the cluster: replicas, leaders, internal topics, and times."""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING

from ottla.cli.command_error import CommandError
from ottla.cli.doctor.finding import NOTE, OK, PROBLEM, Finding
from ottla.topic_partition import TopicPartition

if TYPE_CHECKING:
    from ottla.cli.cluster.overview import Overview
    from ottla.client.client import Client

API_TIMEOUT_MS = 10_000
NAMED_MAX = 3
REPLICAS_WANTED = 3
TIMES_MAX = 200
"""Partitions whose newest time is looked at."""
SKEW_S = 60


def check_cluster(settings: Mapping[str, str]) -> Iterator[Finding]:
    from ottla.cli.cluster.obstacles import mark_obstacles
    from ottla.cli.cluster.overview import observe
    from ottla.client.client import Client
    from ottla.client.connection import Unreachable
    from ottla.errors import KafkaError

    try:
        with closing(Client({**settings, "default.api.timeout.ms": str(API_TIMEOUT_MS)})) as client:
            overview = observe(client, every_topic=True)
            yield from examine_overview(mark_obstacles(client, overview))
            yield from _check_times(client, overview)
    except (CommandError, KafkaError, Unreachable) as error:
        fix = "check the ACLs of the user (ottla acl list): Describe on the cluster and on topics"
        yield Finding(PROBLEM, "cluster", f"it cannot be described: {error}", fix)


def examine_overview(overview: "Overview") -> Iterator[Finding]:
    from ottla.cli.cluster.obstacles import explain_obstacles

    alive = [broker.id for broker in overview.alive()]
    fenced = [broker.id for broker in overview.brokers if broker.fenced]
    if fenced:
        text = f"broker {', '.join(map(str, fenced))} is not alive"
        yield Finding(PROBLEM, "brokers", text, "start it, or remove it for good with `ottla cluster unregister`")
    else:
        yield Finding(OK, "brokers", f"{len(alive)} of cluster {overview.cluster_id}")
    for sentence in explain_obstacles(overview):
        fix = "start ZooKeeper, or see the broker's log; stop no broker meanwhile, because no leader can be elected"
        yield Finding(PROBLEM, "metadata", sentence, fix)
    partitions = overview.partitions
    problems = [
        _report(
            "offline",
            (each.where for each in partitions if each.is_offline),
            "start the brokers that have their replicas; `ottla cluster health` names them",
        ),
        _report(
            "fewer replicas in sync than there should be",
            (each.where for each in partitions if each.is_under_replicated and not each.is_offline),
            "`ottla cluster status` names the brokers that are behind or down",
        ),
        _report(
            "acks=all refused, because min.insync.replicas are not in sync",
            (each.where for each in partitions if overview.is_under_min_in_sync(each)),
            "start the missing brokers; lower min.insync.replicas only if you accept the loss of records",
        ),
        _report(
            "more replicas than there are brokers alive",
            (each.where for each in partitions if len(each.replicas) > len(alive)),
            "start or add brokers, or move the replicas with `ottla cluster reassign`",
        ),
        _report(
            "internal topics with so few replicas that groups or transactions stop with one broker less",
            (
                each.where
                for each in partitions
                if each.where.topic.startswith("__") and len(each.replicas) < min(REPLICAS_WANTED, len(alive))
            ),
            "`ottla cluster reassign` gives them more replicas",
        ),
    ]
    found = [problem for problem in problems if problem is not None]
    yield from found or [Finding(OK, "partitions", f"{len(partitions)}, all with a leader and all replicas in sync")]
    too_few = _report(
        "min.insync.replicas above the number of replicas, which is what counts then",
        (each.where for each in partitions if overview.min_in_sync.get(each.where.topic, 1) > len(each.replicas)),
        "`ottla cluster reassign` gives them more replicas",
        NOTE,
    )
    if too_few is not None:
        yield too_few


def _report(what: str, places: Iterable[TopicPartition], fix: str, level: str = PROBLEM) -> Finding | None:
    found = list(places)
    if not found:
        return None
    names = ", ".join(map(str, found[:NAMED_MAX])) + (", ..." if len(found) > NAMED_MAX else "")
    count = "1 partition" if len(found) == 1 else f"{len(found)} partitions"
    return Finding(level, "partitions", f"{what}: {count} ({names})", fix)


def _check_times(client: "Client", overview: "Overview") -> Iterator[Finding]:
    """Records of the future tell that a clock is wrong: a producer's, or, in topics with LogAppendTime, a broker's."""
    places = [
        each.where for each in overview.partitions if not each.is_offline and not each.where.topic.startswith("__")
    ]
    limit_ms = int((time.time() + SKEW_S) * 1000)
    found = client.list_offsets(dict.fromkeys(places[:TIMES_MAX], limit_ms))
    future = [where for where, answer in found.items() if answer.offset >= 0]
    if future:
        text = f"{', '.join(map(str, future[:NAMED_MAX]))} has records that are more than {SKEW_S} s in the future"
        fix = "compare the clocks of brokers, producers and this machine (chrony or ntpd keeps them right)"
        yield Finding(PROBLEM, "clocks", text, fix)
    elif places:
        yield Finding(OK, "clocks", "no record is in the future")
    else:
        yield Finding(NOTE, "clocks", "without records, times cannot be compared")

"""Takes samples of topics and groups every few seconds.

A small cluster is sampled whole. In a large one only the topics and groups that somebody has looked at within the last
hour are sampled, so that a console costs a cluster with 10,000 topics no more than one with 100.
"""

from ottla.client.client import LATEST, Client
from ottla.console.console import RECENT_S, Console, has_many_groups, is_large
from ottla.console.facts.groups import Offsets, lag_of, read_offsets
from ottla.console.facts.metadata import Snapshot
from ottla.console.facts.offsets import list_offsets
from ottla.console.facts.records import read_range
from ottla.errors import KafkaError
from ottla.records.lag import find_age_s
from ottla.topic_partition import TopicPartition

METADATA_S = 9
INDEX_S = DISKS_S = 55
"""How old facts about a large cluster get before they are read anew, for pages that must not wait for them."""
AGES_MAX = 200
"""Records that are fetched for one sample, to learn how old they are."""
AGE_BYTES = 4_096
"""A broker sends at least one batch, however large."""

ENDS, LAG, LAG_SECONDS = "topic-end", "group-lag", "group-seconds"
TOTAL = ""


def take_sample(console: Console) -> None:
    now_ms = console.now_ms()
    snapshot = console.metadata.get(METADATA_S)
    is_small = not is_large(snapshot)
    if not is_small:
        console.disks.get(DISKS_S)
    topics = list(snapshot.topics) if is_small else console.history.wanted(ENDS, now_ms)
    wanted = {
        TopicPartition(name, part.number)
        for name in topics
        if name in snapshot.topics
        for part in snapshot.topics[name].partitions
    }
    with console.clients.borrow() as client:
        offsets = _read_offsets(console, client, now_ms)
        wanted.update(where for committed in offsets.values() for where in committed)
        ends = list_offsets(client, snapshot, sorted(wanted), LATEST)
        _add_topics(console, snapshot, topics, ends, now_ms, is_small)
        _add_groups(console, client, offsets, ends, now_ms)
    console.history.drop_old(now_ms)


def _read_offsets(console: Console, client: Client, now_ms: int) -> dict[str, Offsets]:
    """Of all groups, or of those that somebody has looked at."""
    groups = console.groups.get(RECENT_S - 1)
    if not has_many_groups(groups):
        return console.index.get(RECENT_S - 1).offsets
    console.index.get(INDEX_S)
    return read_offsets(client, [groups[name] for name in console.history.wanted(LAG, now_ms) if name in groups])


def _add_topics(
    console: Console,
    snapshot: Snapshot,
    topics: list[str],
    ends: dict[TopicPartition, int],
    now_ms: int,
    is_small: bool,
) -> None:
    total = 0
    for name in topics:
        if name in snapshot.topics:
            parts = [ends.get(TopicPartition(name, part.number), 0) for part in snapshot.topics[name].partitions]
            console.history.add(ENDS, name, now_ms, sum(parts))
            total += 0 if snapshot.topics[name].is_internal else sum(parts)
    if is_small:
        console.history.add(ENDS, TOTAL, now_ms, total)


def _add_groups(
    console: Console,
    client: Client,
    offsets: dict[str, Offsets],
    ends: dict[TopicPartition, int],
    now_ms: int,
) -> None:
    budget = AGES_MAX
    for name, committed in offsets.items():
        lags = {where: lag_of(each, ends.get(where)) or 0 for where, each in committed.items()}
        console.history.add(LAG, name, now_ms, sum(lags.values()))
        behind = {where: committed[where].offset for where, lag in lags.items() if lag}
        if len(behind) <= budget:
            budget -= len(behind)
            ages = find_ages(console, client, behind, ends, now_ms)
            console.history.add(LAG_SECONDS, name, now_ms, max(ages.values(), default=0.0))


def find_ages(
    console: Console,
    client: Client,
    behind: dict[TopicPartition, int],
    ends: dict[TopicPartition, int],
    now_ms: int,
) -> dict[TopicPartition, float]:
    """How many seconds ago the first unread record of each partition was written: the lag in seconds."""
    found: dict[TopicPartition, float] = {}
    for where, offset in behind.items():
        known = console.timestamps.get(where)
        if known is None or known[0] != offset:
            end = min(ends.get(where, offset + 1), offset + 100)
            try:
                record = next(read_range(client, where, offset, end, max_bytes=AGE_BYTES), None)
            except KafkaError:
                continue
            if record is None:
                continue
            known = console.timestamps[where] = offset, record.timestamp
        found[where] = find_age_s(known[1], now_ms)
    return found

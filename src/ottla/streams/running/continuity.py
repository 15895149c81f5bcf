"""Whether everything that an app has left behind is still there when it starts again.

State and committed offsets belong together: without the offsets, records would be counted twice; without a changelog,
counts would begin at zero in the middle. Either can disappear by itself, because a broker removes the offsets of a
group that has no members after offsets.retention.minutes, or by somebody's hand. So an app registers the topics that it
depends on, with their ids, and the positions that it has committed. A start that does not find them is refused.

Where a task begins is committed before any task runs, so an offset that is missing later is one that was removed.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from ottla.client.client import LATEST, READ_COMMITTED, Client, UnknownTopic
from ottla.client.groups import fetch_offsets
from ottla.client.transactions import commit_offsets_in_transaction, end_transaction, init_producer
from ottla.streams.errors import StreamsError
from ottla.streams.planning.plan import AppPlan, SubtopologyPlan
from ottla.streams.running.positions import find_first, find_starts, to_committed_offset
from ottla.streams.running.registration import Registration
from ottla.streams.running.work import Position
from ottla.topic_partition import TopicPartition

_RENEWED: Final = "was deleted and created again"


def check_topics(client: Client, plan: AppPlan, before: Registration) -> None:
    """Raises StreamsError if a topic that the app goes on with was deleted, or deleted and created again."""
    for topic in _list_topics(plan):
        known = before.topic_ids.get(topic)
        if known is None:
            continue
        try:
            found = client.find_topic_id(topic).hex()
        except UnknownTopic:
            found = None
        if found != known:
            raise _refuse(plan.app, topic, "was deleted" if found is None else _RENEWED)


def check_same_topics(client: Client, app: str, topics: Iterable[str], topic_ids: Mapping[str, str]) -> None:
    """The same for topics of a running app, as the client knows them. Offsets of a topic that was created again may
    look right once it has as many records as the old one had."""
    for topic in topics:
        if client.find_topic_id(topic).hex() != topic_ids[topic]:
            raise _refuse(app, topic, _RENEWED)


def _refuse(app: str, topic: str, what: str) -> StreamsError:
    return StreamsError(
        f"app {app!r}: topic {topic!r} {what}, so its positions and its state do not fit any more."
        f" ottla stream reset {app} lets it begin anew"
    )


def find_topic_ids(client: Client, plan: AppPlan) -> dict[str, str]:
    """The ids of the topics that the app goes on with after a restart."""
    return {topic: client.find_topic_id(topic).hex() for topic in _list_topics(plan)}


def list_positions(plan: AppPlan) -> list[list[str]]:
    """The groups and topics of which the app has committed offsets once it has begun."""
    return [[unit.group, source.topic] for unit in plan.subtopologies for source in unit.sources]


def check_unread(client: Client, plan: AppPlan, before: Registration) -> None:
    """Raises StreamsError if an exchange that the app has no more holds rows that nobody has read."""
    reads = {(unit.group, source.topic) for unit in plan.subtopologies for source in unit.sources}
    for group, topic in before.positions:
        if topic not in before.internal_topics or (group, topic) in reads:
            continue
        try:
            count = client.count_partitions([topic])[topic]
        except UnknownTopic:
            continue
        places = [TopicPartition(topic, number) for number in range(count)]
        ends = client.list_offsets(dict.fromkeys(places, LATEST), READ_COMMITTED)
        committed = fetch_offsets(client, group, places, require_stable=True)
        for where in places:
            if where in committed and committed[where].offset < ends[where].offset:
                raise StreamsError(
                    f"app {plan.app!r}: {where} has rows that were not read, and the new topology does not read them."
                    " Start the app as it was until it has read them, or"
                    f" ottla stream reset {plan.app} lets it begin anew"
                )


def commit_added(client: Client, app: str, unit: SubtopologyPlan, added: Iterable[int], timeout_ms: int) -> None:
    """Commit where the tasks of partitions begin that sources have got while the app ran: with their first records,
    also if a new app would begin at the end."""
    places = [TopicPartition(source.topic, number) for number in added for source in unit.sources]
    committed = fetch_offsets(client, unit.group, places, require_stable=True)
    missing = [where for where in dict.fromkeys(places) if where not in committed]
    _commit(client, app, unit, find_first(client, missing), timeout_ms)


def commit_starts(
    client: Client, plan: AppPlan, counts: Mapping[str, int], before: Registration | None, timeout_ms: int
) -> None:
    """Commit where tasks begin that have no committed offset. Raises StreamsError if they had one before."""
    known = {(group, topic) for group, topic in before.positions} if before is not None else set()
    old_counts = before.topology.get("topics", {}) if before is not None else {}
    for unit in plan.subtopologies:
        numbers = range(counts[unit.sources[0].topic])
        wanted = [TopicPartition(source.topic, number) for number in numbers for source in unit.sources]
        committed = fetch_offsets(client, unit.group, wanted, require_stable=True)
        missing = [where for where in dict.fromkeys(wanted) if where not in committed]
        added = [where for where in missing if where.partition >= old_counts.get(where.topic, where.partition + 1)]
        for where in missing:
            if (unit.group, where.topic) in known and where not in added:
                raise StreamsError(
                    f"app {plan.app!r}: the committed offset of {where} in group {unit.group!r} is gone, perhaps"
                    " because the app did not run for offsets.retention.minutes; records would be processed twice."
                    f" ottla stream reset {plan.app} lets it begin anew, ottla group reset {unit.group} sets an offset"
                )
        starts = find_starts(client, unit, [where for where in missing if where not in added])
        _commit(client, plan.app, unit, {**starts, **find_first(client, added)}, timeout_ms)


def _commit(
    client: Client, app: str, unit: SubtopologyPlan, starts: Mapping[TopicPartition, Position], timeout_ms: int
) -> None:
    """In a transaction of each task, so that a copy of the app that was fenced cannot set offsets back."""
    for number in sorted({where.partition for where in starts}):
        producer = init_producer(client, unit.transactional_id(app, number), timeout_ms)
        own = {where: to_committed_offset(each) for where, each in starts.items() if where.partition == number}
        commit_offsets_in_transaction(client, producer, unit.group, own)
        end_transaction(client, producer, commit=True)


def _list_topics(plan: AppPlan) -> list[str]:
    """Sources, the topics between subtopologies among them, and changelogs."""
    sources = {source.topic for unit in plan.subtopologies for source in unit.sources}
    return sorted(sources | {store.changelog for unit in plan.subtopologies for store in unit.stores})

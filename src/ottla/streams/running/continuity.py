"""Whether everything that an app has left behind is still there when it starts again.

State and committed offsets belong together: without the offsets, records would be counted twice; without a changelog,
counts would begin at zero in the middle. Either can disappear by itself, because a broker removes the offsets of a
group that has no members after offsets.retention.minutes, or by somebody's hand. So an app registers the topics that it
depends on, with their ids, and the positions that it has committed. A start that does not find them is refused.

Where a task begins is committed before any task runs, so an offset that is missing later is one that was removed.
"""

from collections.abc import Mapping

from ottla.client.client import Client, UnknownTopic
from ottla.client.groups import fetch_offsets
from ottla.client.transactions import commit_offsets_in_transaction, end_transaction, init_producer
from ottla.streams.errors import StreamsError
from ottla.streams.planning.plan import AppPlan, SubtopologyPlan
from ottla.streams.running.positions import find_starts, to_committed_offset
from ottla.streams.running.registration import Registration
from ottla.topic_partition import TopicPartition


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
            what = "was deleted" if found is None else "was deleted and created again"
            raise StreamsError(
                f"app {plan.app!r}: topic {topic!r} {what}, so its positions and its state do not fit any more."
                f" ottla stream reset {plan.app} lets it begin anew"
            )


def find_topic_ids(client: Client, plan: AppPlan) -> dict[str, str]:
    """The ids of the topics that the app goes on with after a restart."""
    return {topic: client.find_topic_id(topic).hex() for topic in _list_topics(plan)}


def list_positions(plan: AppPlan) -> list[list[str]]:
    """The groups and topics of which the app has committed offsets once it has begun."""
    return [[unit.group, source.topic] for unit in plan.subtopologies for source in unit.sources]


def commit_starts(
    client: Client, plan: AppPlan, counts: Mapping[str, int], before: Registration | None, timeout_ms: int
) -> None:
    """Commit where tasks begin that have no committed offset. Raises StreamsError if they had one before."""
    known = {(group, topic) for group, topic in before.positions} if before is not None else set()
    for unit in plan.subtopologies:
        numbers = range(counts[unit.sources[0].topic])
        wanted = [TopicPartition(source.topic, number) for number in numbers for source in unit.sources]
        committed = fetch_offsets(client, unit.group, wanted, require_stable=True)
        missing = [where for where in dict.fromkeys(wanted) if where not in committed]
        for where in missing:
            if (unit.group, where.topic) in known:
                raise StreamsError(
                    f"app {plan.app!r}: the committed offset of {where} in group {unit.group!r} is gone, perhaps"
                    " because the app did not run for offsets.retention.minutes; records would be processed twice."
                    f" ottla stream reset {plan.app} lets it begin anew, ottla group reset {unit.group} sets an offset"
                )
        _commit(client, plan.app, unit, missing, timeout_ms)


def _commit(client: Client, app: str, unit: SubtopologyPlan, missing: list[TopicPartition], timeout_ms: int) -> None:
    """In a transaction of each task, so that a copy of the app that was fenced cannot set offsets back."""
    starts = find_starts(client, unit, missing)
    for number in sorted({where.partition for where in missing}):
        producer = init_producer(client, unit.transactional_id(app, number), timeout_ms)
        own = {where: to_committed_offset(each) for where, each in starts.items() if where.partition == number}
        commit_offsets_in_transaction(client, producer, unit.group, own)
        end_transaction(client, producer, commit=True)


def _list_topics(plan: AppPlan) -> list[str]:
    """Sources, the topics between subtopologies among them, and changelogs."""
    sources = {source.topic for unit in plan.subtopologies for source in unit.sources}
    return sorted(sources | {store.changelog for unit in plan.subtopologies for store in unit.stores})

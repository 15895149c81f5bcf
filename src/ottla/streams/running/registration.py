"""Which apps run where: one record per app in a compacted topic.

A starting app registers before it fences older owners of its transactional ids. So an app whose transaction was ended
by somebody else can tell why: if the record names another instance, that one has taken over; if not, a transaction has
timed out. A stopped app stays registered, because `ottla stream reset` must know what to delete.

Columns and kernels are imported where they are used: `ottla stream list` needs them only if there is an app.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, TypeVar

from ottla.client.client import EARLIEST, LATEST, READ_COMMITTED, Client, UnknownTopic
from ottla.topic_partition import TopicPartition

TOPIC: Final = "__ottla_streams_apps"
_CONFIG: Final = {"cleanup.policy": "compact", "segment.ms": "3600000"}

T = TypeVar("T")

RUNNING, STOPPED, FAILED = "running", "stopped", "failed"


@dataclass(frozen=True)
class Registration:
    """What is known about an app: where it runs, and what it owns."""

    app: str
    instance: str
    """Different for every start of the app."""
    state: str
    address: str
    """Of the app's pages and queries, such as http://127.0.0.1:8080."""
    host: str
    pid: int
    started_ms: int
    internal_topics: Sequence[str] = ()
    groups: Sequence[str] = ()
    state_dirs: Sequence[str] = ()
    topology: dict[str, Any] = field(default_factory=dict)
    """What `planning/compatibility.py` compares with the topology of the next start."""
    topic_ids: dict[str, str] = field(default_factory=dict)
    """The topics that the app goes on with after a restart, with their ids."""
    positions: Sequence[Sequence[str]] = ()
    """The groups and topics of which the app has committed offsets (see `continuity.py`)."""
    description: str = ""
    """The topology for people."""
    message: str = ""
    """Why the app has failed."""


def add_former(registration: Registration, before: Registration) -> Registration:
    """The registration with what the app owns from starts before, perhaps with other topologies: a step that comes back
    goes on with it, and a reset deletes it."""
    return replace(
        registration,
        internal_topics=merge(before.internal_topics, registration.internal_topics),
        groups=merge(before.groups, registration.groups),
        topic_ids=before.topic_ids,
        positions=before.positions,
    )


def merge(some: Iterable[T], others: Iterable[T]) -> list[T]:
    """All of both, in order and without duplicates."""
    found = list(some)
    found += [each for each in others if each not in found]
    return found


def create_registry(client: Client) -> None:
    """Create the topic unless it exists. A reader waits two seconds for a topic before it takes it for missing."""
    from ottla.streams.running.internal_topics import create_topic

    create_topic(client, TOPIC, 1, _CONFIG)


def register(client: Client, registration: Registration) -> None:
    """Write the record of an app and wait until it is there."""
    import pyarrow as pa

    row = pa.record_batch(
        [pa.array([registration.app.encode()]), pa.array([json.dumps(asdict(registration)).encode()])],
        names=["key", "value"],
    )
    _send(client, row)


def forget(client: Client, app: str) -> None:
    """Remove the record of an app."""
    import pyarrow as pa

    _send(client, pa.record_batch([pa.array([app.encode()]), pa.array([None], pa.binary())], names=["key", "value"]))


def _send(client: Client, rows: Any) -> None:
    from ottla.client.sending import EncodedBatch, Sender
    from ottla.pipeline.encoding import Encoder

    encoder = Encoder(lambda topic: 1, client.random, topic=TOPIC)
    sender = Sender(client)
    batches: list[EncodedBatch] = [*encoder.add(rows), *encoder.flush()]
    sender.send_all(batches)
    sender.flush()


def read_registrations(client: Client) -> dict[str, Registration]:
    """The newest record of every app."""
    where = TopicPartition(TOPIC, 0)
    try:
        start = client.list_offsets({where: EARLIEST})[where].offset
        end = client.list_offsets({where: LATEST}, READ_COMMITTED)[where].offset
    except UnknownTopic:
        return {}
    from ottla.client.fetching import fetch
    from ottla.pipeline.decoding import decode

    found: dict[str, Registration] = {}
    for batch in decode(fetch(client, *where, start, end), *where, start, end, ("key", "value")):
        for row in batch.to_pylist():
            app = row["key"].decode()
            found.pop(app, None)
            if row["value"] is not None:
                found[app] = Registration(**json.loads(row["value"]))
    return found


def find_registration(client: Client, app: str) -> Registration | None:
    return read_registrations(client).get(app)

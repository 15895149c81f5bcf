"""This follower's half of a Fetch session (KIP-227) with one leader: the requests, and what the leader knows from them.

The leader remembers what it was asked for each partition. A request names only the partitions whose offsets changed,
and those that are to be forgotten. No I/O, no clock.
"""

from typing import NamedTuple

from ottla.replication.fetch_sessions import next_epoch
from ottla.replication.followed import Followed
from ottla.replication.following import make_request
from ottla.topic_partition import TopicIdPartition
from ottla.wire.fetch import FetchRequest, FetchTopic, ForgottenTopic


class FetchSettings(NamedTuple):
    min_bytes: int
    wait_max_ms: int
    partition_max_bytes: int
    response_max_bytes: int
    backoff_s: float
    timeout_s: float
    answer_bytes_max: int


class LeaderSession:
    """It has attributes where each answer would need a call: producers with acks=all wait for the next request."""

    __slots__ = (
        "_id",
        "_is_refused",
        "changed",
        "epoch",
        "forgotten",
        "partitions",
        "request_number",
        "valid_from",
    )

    def __init__(self) -> None:
        self.partitions: dict[TopicIdPartition, Followed] = {}
        """All partitions that are copied over the connection. Those that are paused are not in the session."""
        self.changed: dict[TopicIdPartition, Followed] = {}
        """Partitions whose next request differs from what the session holds."""
        self.forgotten: dict[TopicIdPartition, None] = {}
        """Partitions that the session holds and that are not wanted any more."""
        self._id = 0
        self.epoch = 0
        """The epoch of the next request; 0 if there is no session, so that the request has to name every partition."""
        self._is_refused = False
        """Whether the leader had no room for a session: then each request names every partition."""
        self.request_number = 0
        """The number of the last request."""
        self.valid_from = 0
        """Answers to requests before this number belong to a session that is gone."""

    def has(self, followed: Followed) -> bool:
        """Whether the partition is still copied over the connection, in the same leader epoch."""
        return self.partitions.get(followed.key) is followed

    def is_active(self) -> bool:
        """Whether the leader's session holds a partition."""
        return any(followed.asked is not None for followed in self.partitions.values())

    def withdraw(self, followed: Followed) -> None:
        """Take a partition out of the session, with the next request."""
        self.changed.pop(followed.key, None)
        if followed.asked is not None:
            followed.asked = None
            self.forgotten[followed.key] = None

    def name_all(self) -> None:
        """Before the first request of a session: it names every partition that is not paused."""
        self.forgotten.clear()
        self.changed = {key: followed for key, followed in self.partitions.items() if not followed.is_paused}

    def make_request(self, broker_id: int, broker_epoch: int, settings: FetchSettings) -> FetchRequest:
        """The next request, with everything that has changed. The session counts it as sent."""
        self.request_number += 1
        number, max_bytes = self.request_number, settings.partition_max_bytes
        topics: dict[bytes, FetchTopic] = {}
        for key, followed in self.changed.items():
            partition = followed.partition
            high_watermark = partition.high_watermark.value
            asked = make_request(partition.index, followed.leader_epoch, partition.log, high_watermark, max_bytes)
            followed.asked, followed.asked_in = asked, number
            self.forgotten.pop(key, None)
            topic = topics.get(key[0])
            if topic is None:
                topic = topics[key[0]] = FetchTopic(partition.topic, key[0])
            topic.partitions.append(asked)
        self.changed.clear()
        forgotten: dict[bytes, ForgottenTopic] = {}
        for topic_id, index in self.forgotten:
            forgotten.setdefault(topic_id, ForgottenTopic("", topic_id, [])).indexes.append(index)
        self.forgotten.clear()
        epoch = self.epoch
        request = FetchRequest(
            replica_id=broker_id,
            replica_epoch=broker_epoch,
            # The answer with the session's id comes at once: without it no further request could be sent meanwhile.
            max_wait_ms=0 if epoch == 0 and not self._is_refused else settings.wait_max_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_max_bytes,
            session_id=self._id,
            session_epoch=epoch,
            topics=list(topics.values()),
            forgotten=list(forgotten.values()),
        )
        if epoch:
            self.epoch = next_epoch(epoch)
        return request

    def begin(self, session_id: int) -> None:
        """The leader has answered the first request. `session_id` is 0 if it keeps no session."""
        self._id = session_id
        self.epoch = 1 if session_id else 0
        self._is_refused = not session_id

    def end(self) -> None:
        """The leader has no session any more. The next request names every partition."""
        self.epoch = 0
        self._is_refused = False
        self.valid_from = self.request_number + 1
        for followed in self.partitions.values():
            followed.asked = None
        self.forgotten.clear()

"""Topics that an administrator creates, extends, empties, compacts and deletes while the cluster is in trouble.

renewed    written to, deleted, and created anew under the same name: it never shows a record of an earlier topic
extended   gets partitions and loses records by DeleteRecords: what was deleted never comes back, the rest stays
compacted  has few keys, with tombstones and short segments: every replica ends with the last value of each key
"""

import time
from collections.abc import Callable
from contextlib import suppress
from random import Random

from confluent_kafka import KafkaError, Message, Producer

from ottla.errors import ErrorCode
from ottla.records import batch
from ottla.topic_partition import TopicPartition
from ottla.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.cluster.admin_requests import TIMEOUT_MS, TOPIC, Requests
from tests.cluster.links import HOST
from tests.cluster.load import QUIET, create_topic, wait_for
from tests.patience import PATIENCE_MS, PATIENCE_S
from tests.raw_client import RawClient

PARTITIONS_MAX = 8
KEYS = 20
COMPACTION = {"cleanup.policy": "compact", "segment.ms": "500", "delete.retention.ms": "100"}
NOT_KNOWN_YET = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
"""A broker has not heard of the topic yet."""


class Written:
    """What was sent to a topic, and at which offsets it was acknowledged."""

    def __init__(self) -> None:
        self.sent: set[bytes] = set()
        self.acknowledged: dict[TopicPartition, dict[int, bytes]] = {}
        self.deleted: dict[TopicPartition, int] = {}
        """Below this offset DeleteRecords has deleted everything, as was acknowledged."""
        self.may_be_deleted: dict[TopicPartition, int] = {}
        """Below this offset it was asked to."""

    def check(self, where: TopicPartition, start: int, found: dict[int, bytes]) -> str | None:
        """What is wrong with a replica that begins at `start` and holds these records."""
        strange = sorted(set(found.values()) - self.sent)
        acknowledged = self.acknowledged.get(where, {})
        required = {at: value for at, value in acknowledged.items() if at >= self.may_be_deleted.get(where, 0)}
        lost = sorted(at for at, value in required.items() if found.get(at) != value)
        if strange or lost:
            return f"{where}: strange {strange[:3]}, lost {[(at, required[at]) for at in lost[:3]]}, from {start} on"
        if start < self.deleted.get(where, 0):
            return f"{where}: begins at {start}, and was deleted up to {self.deleted[where]}"
        return None


class SideTopics:
    def __init__(self, requests: Requests, bootstrap: str, suffix: str, random: Random) -> None:
        self._requests = requests
        self._random = random
        self._bootstrap = bootstrap
        self.renewed, self.extended, self.compacted = (
            f"{name}-{suffix}" for name in ("renewed", "extended", "compacted")
        )
        self._renewed = Written()
        self._extended = Written()
        self._exists: bool | None = False
        """Whether the renewed topic exists. None: a request was not answered, and may even have its effect later, until
        another one has had one."""
        self._partitions = {len(create_topic(bootstrap, self.extended, 2))}
        """How many partitions the extended topic may have."""
        create_topic(bootstrap, self.compacted, 1, **COMPACTION)
        self._last: dict[bytes, bytes | None] = {}
        self._numbers = 0
        self._producer = Producer(
            QUIET
            | {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "request.timeout.ms": 4000,
                "message.timeout.ms": PATIENCE_MS,
            }
        )

    def list_actions(self) -> list[Callable[[], None]]:
        return [self._renew, self._renew, self._write_extended, self._extend, self._delete_records, self._compact]

    def list_topics(self) -> list[str]:
        return [self.extended, self.compacted, *([self.renewed] if self._exists else [])]

    def write_compacted(self) -> None:
        """A few values and tombstones. They are sent at some time before `finish` returns."""
        for _ in range(10):
            key = f"key-{self._random.randrange(KEYS)}".encode()
            value = None if self._random.random() < 0.3 else self._make_value("compacted")
            self._producer.produce(self.compacted, value, key, on_delivery=self._on_delivery)
            self._last[key] = value
        self._producer.poll(0)

    def finish(self) -> None:
        """In peace: everything that was sent is answered, and the renewed topic exists."""
        if left := self._producer.flush(PATIENCE_S):
            self._requests.failures.append(f"{left} records of {self.compacted} were not acknowledged")
        wait_for(self._make_sure_it_exists, f"{self.renewed} exists", lambda: f"{self._requests.failures}")

    def check(self) -> None:
        """Compare every replica with what was written."""
        for topic, written in ((self.renewed, self._renewed), (self.extended, self._extended)):
            partitions = self._requests.find_partitions(topic)
            assert topic != self.extended or len(partitions) in self._partitions, (topic, len(partitions))
            for where, _, log in self._requests.read_replicas(topic):
                found = {record.offset: record.value or b"" for record in log.decode()}
                problem = written.check(where, log.start, found)
                assert problem is None, problem
        for where, broker, log in self._requests.read_replicas(self.compacted):
            last = {record.key or b"": record.value for record in log.decode()}
            wanted = {key: value for key, value in self._last.items() if value is not None}
            shown = {key: value for key, value in last.items() if value is not None}
            assert shown == wanted, (where, broker, set(shown.items()) ^ set(wanted.items()))

    def _on_delivery(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._requests.failures.append(f"{self.compacted}: {error}")

    def _make_value(self, name: str) -> bytes:
        self._numbers += 1
        return f"{name}-{self._numbers}".encode()

    # --- the renewed topic ---

    def _renew(self) -> None:
        if self._exists:
            for _ in range(self._random.randint(0, 3)):
                self._write(self.renewed, 0, self._renewed)
        if self._exists is None:
            self._random.choice((self._create, self._delete))()
        elif self._exists:
            self._delete()
        else:
            self._create()

    def _make_sure_it_exists(self) -> bool:
        if not self._exists:
            self._renew()
        return bool(self._exists) and self._write(self.renewed, 0, self._renewed)

    def _create(self) -> None:
        settings = [CreatableTopicConfig(name="min.insync.replicas", value="2")]
        topic = CreatableTopic(name=self.renewed, num_partitions=2, replication_factor=3, configs=settings)
        answer = self._requests.ask(CreateTopicsRequest(timeout_ms=TIMEOUT_MS, topics=[topic]))
        if answer is None:
            self._exists = None
            return
        (result,) = answer.topics
        # Fewer than three brokers are up; or an earlier request without an answer has had its effect since.
        documented = (ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.TOPIC_ALREADY_EXISTS)
        if self._requests.judge(f"create {self.renewed}", result.error_code, documented, result.error_message):
            self._exists, self._renewed = True, Written()
        elif result.error_code == ErrorCode.REQUEST_TIMED_OUT:
            self._exists = None

    def _delete(self) -> None:
        topics = [DeleteTopicState(name=self.renewed)]
        answer = self._requests.ask(DeleteTopicsRequest(timeout_ms=TIMEOUT_MS, topics=topics))
        if answer is None:
            self._exists = None
            return
        (result,) = answer.responses
        documented = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,)
        if self._requests.judge(f"delete {self.renewed}", result.error_code, documented, result.error_message):
            self._exists = False
        elif result.error_code == ErrorCode.REQUEST_TIMED_OUT:
            self._exists = None

    # --- the extended topic ---

    def _write_extended(self) -> None:
        for _ in range(3):
            self._write(self.extended, self._random.randrange(min(self._partitions)), self._extended)

    def _extend(self) -> None:
        wanted = max(self._partitions) + 1
        if wanted > PARTITIONS_MAX:
            return
        topics = [CreatePartitionsTopic(name=self.extended, count=wanted)]
        answer = self._requests.ask(CreatePartitionsRequest(timeout_ms=TIMEOUT_MS, topics=topics))
        if answer is None:
            self._partitions.add(wanted)
            return
        (result,) = answer.results
        documented = (ErrorCode.INVALID_REPLICATION_FACTOR,)
        if self._requests.judge(f"extend {self.extended}", result.error_code, documented, result.error_message):
            self._partitions = {wanted}
        elif result.error_code == ErrorCode.REQUEST_TIMED_OUT:
            self._partitions.add(wanted)

    def _delete_records(self) -> None:
        candidates = sorted(where for where, offsets in self._extended.acknowledged.items() if offsets)
        if not candidates:
            return
        where = self._random.choice(candidates)
        offset = self._random.choice(sorted(self._extended.acknowledged[where])) + 1
        may_be_deleted = self._extended.may_be_deleted
        leader = self._requests.find_leader(where)
        if leader is None:
            return
        may_be_deleted[where] = max(may_be_deleted.get(where, 0), offset)
        partition = DeleteRecordsPartition(partition_index=where.partition, offset=offset)
        topics = [DeleteRecordsTopic(name=where.topic, partitions=[partition])]
        answer = self._requests.ask(DeleteRecordsRequest(timeout_ms=TIMEOUT_MS, topics=topics), leader)
        if answer is None:
            return
        (result,) = answer.topics[0].partitions
        # A new leader may not know the high watermark of the last one yet.
        documented = (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if self._requests.judge(f"delete records of {where} up to {offset}", result.error_code, documented):
            known = self._extended.deleted
            known[where] = max(known.get(where, 0), result.low_watermark)
            assert result.low_watermark >= offset, (where, offset, result)

    # --- the compacted topic ---

    def _compact(self) -> None:
        """Change the settings by which the topic is compacted. None of them removes a last value."""
        settings = {
            "cleanup.policy": self._random.choice(("compact", "compact", "compact,delete", "delete")),
            "min.cleanable.dirty.ratio": self._random.choice(("0.01", "0.5")),
            "delete.retention.ms": self._random.choice(("0", "100", "86400000")),
            "segment.ms": self._random.choice(("200", "500")),
        }
        self._requests.change_settings((TOPIC, self.compacted), settings)

    # --- records ---

    def _write(self, topic: str, partition: int, written: Written) -> bool:
        """Write a record. Whether it was acknowledged."""
        where = TopicPartition(topic, partition)
        leader = self._requests.find_leader(where)
        if leader is None:
            return False
        value = self._make_value(topic)
        written.sent.add(value)
        records = batch.encode([(None, value, (), int(time.time() * 1000))])
        result = None
        with suppress(OSError), RawClient(HOST, leader.port) as client:
            result = client.produce(topic, partition, records, timeout_ms=TIMEOUT_MS)
        if result is None:
            return False
        done = self._requests.judge(f"write to {where}", result.error_code, NOT_KNOWN_YET)
        if done:
            written.acknowledged.setdefault(where, {})[result.base_offset] = value
        return done

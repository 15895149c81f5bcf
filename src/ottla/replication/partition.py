"""One partition on this broker: its log, its state in the cluster, its high watermark.

A follower reads up to the end of the log, a consumer up to the high watermark, a read_committed consumer up to the last
stable offset. Only the leader computes the high watermark: it is the smallest end offset of the in-sync replicas (see
`in_sync`). A follower takes it over from its leader. With flush.messages=1 a record is acknowledged only when it is on
disk: then this replica's own end counts only as far as it is flushed, so that nobody reads what a power cut could take
back.
"""

import asyncio
import logging
from collections.abc import Container, Mapping
from dataclasses import dataclass

from ottla.cluster.image import PartitionImage
from ottla.config import TopicConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.observability.metrics import TopicMeter
from ottla.records import batch
from ottla.records.batch import BatchHeader
from ottla.replication.flushing import Flushing
from ottla.replication.in_sync import UNKNOWN, InSync, IsrProposer
from ottla.replication.refused_batches import RefusedBatches
from ottla.replication.validation import Rules
from ottla.replication.watermarks import Signal, Watermark
from ottla.storage.directories import DataDirectory
from ottla.storage.disk_errors import is_full
from ottla.storage.files import Bytes, FileSlice
from ottla.storage.log import AbortedTransaction, Appended, Log, LogSettings
from ottla.storage.retention import find_expired
from ottla.system.threads import Offload
from ottla.topic_partition import TopicPartition

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class PartitionRead:
    """What a fetch gets from one partition."""

    records: FileSlice | None
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[AbortedTransaction] | None


class Partition:
    __slots__ = (
        "_isr_proposer",
        "_refused",
        "broker_id",
        "config",
        "durable",
        "end_moved",
        "flushing",
        "high_watermark",
        "in_sync",
        "index",
        "log",
        "meter",
        "moving_to",
        "rules",
        "state",
        "topic",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        index: int,
        log: Log,
        config: TopicConfig,
        broker_id: int,
        offload: Offload,
        high_watermark: int,
        meter: TopicMeter | None = None,
        isr_proposer: IsrProposer | None = None,
    ) -> None:
        """`isr_proposer`: None on a broker that is alone, where no ISR ever changes."""
        self.topic = topic
        self.topic_partition = TopicPartition(topic, index)
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.meter = meter or TopicMeter()
        self.config = config
        self.rules = Rules.of(config)
        self.broker_id = broker_id
        self.state: PartitionImage | None = None
        self.high_watermark = Watermark(min(max(high_watermark, log.log_start_offset), log.end_offset))
        self.durable = Watermark(log.recovery_point)
        self.end_moved = Signal()
        """Wakes followers that wait for records: the end of the log moved, or the partition's state changed."""
        self.in_sync: InSync | None = None
        """The followers, while this broker leads a partition with more than one replica."""
        self.moving_to: DataDirectory | None = None
        """The data directory of this broker to which the log is being copied. It is not compacted meanwhile."""
        self._isr_proposer = isr_proposer
        self._refused = RefusedBatches()
        self.flushing = Flushing(self, offload)

    def __repr__(self) -> str:
        return str(self.topic_partition)

    # Leadership

    @property
    def leader_epoch(self) -> int:
        return self.state.leader_epoch if self.state else -1

    @property
    def is_leader(self) -> bool:
        return self.state is not None and self.state.leader == self.broker_id

    def become(self, state: PartitionImage) -> None:
        """Follow the metadata: this replica leads or follows as `state` says."""
        before, self.state = self.state, state
        if before is state or before == state:
            return
        if state.leader == self.broker_id:
            self._lead(before, state)
        else:
            self.in_sync = None
            if before is None or (before.leader, before.leader_epoch) != (state.leader, state.leader_epoch):
                self.fail_waiters(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        self.high_watermark.wake()
        self.end_moved.wake()

    def _lead(self, before: PartitionImage | None, state: PartitionImage) -> None:
        proposer, in_sync = self._isr_proposer, self.in_sync
        now = proposer.now() if proposer is not None else 0.0
        if before is None or before.leader_epoch != state.leader_epoch:
            # The start of the epoch is recorded before the first request is served in it.
            self.log.epochs.assign(state.leader_epoch, self.log.end_offset)
            self._refused.note_election(self.log.producers.producers)
            in_sync = None
            if before is not None and before.leader != state.leader:
                self.meter.count_election(eligible=self.broker_id in before.elr, unclean=state.recovering)
        if len(state.replicas) == 1:
            self.in_sync = None
        elif in_sync is None:
            self.in_sync = InSync(self.broker_id, state, self.log.epochs.latest_start, now)
        else:
            in_sync.follow(state, now)
        if self.config.flush_messages == 1 and self.log.recovery_point < self.log.end_offset:
            self.flushing.request()  # records that a crash left may be in the page cache only
        self._move_high_watermark()
        if proposer is not None and len(state.isr) < len(state.replicas):
            proposer.note_incomplete(self)
            self._propose_joining()
        if len(state.isr) < self._find_in_sync_needed(state):
            # The high watermark stands still until more replicas are in sync: producers need not wait for that.
            self.high_watermark.fail(KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))

    def fail_waiters(self, error: KafkaError) -> None:
        """Requests that wait for this partition get `error`."""
        self.durable.fail(error)
        self.high_watermark.fail(error)

    def require_leader(self, current_leader_epoch: int = -1) -> None:
        """KafkaError if the client sent a leader epoch that is not the current one, or this broker does not lead.

        The epoch comes first, as in Kafka: it tells the client whether its metadata is older than this broker's.
        """
        state = self.state
        if state is not None and current_leader_epoch >= 0:
            self.require_epoch(current_leader_epoch)
        if state is None or state.leader != self.broker_id:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def require_epoch(self, current_leader_epoch: int) -> None:
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    # Writing

    def admit(self, header: BatchHeader, acks: int) -> PartitionImage:
        """Check whether a batch with this header may be appended. Returns the state to append it in, or KafkaError."""
        state = self.state
        if state is None or state.leader != self.broker_id:
            raise self._refused.explain(header, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        config = self.config
        size = header.size
        if size > config.max_message_bytes:
            self.meter.bytes_rejected += size
            message = f"a batch of {size} bytes is larger than max.message.bytes={config.max_message_bytes}"
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, message)
        if size > config.segment_bytes:
            message = f"a batch of {size} bytes is larger than segment.bytes={config.segment_bytes}"
            raise KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE, message)
        if acks == -1 and len(state.isr) < self._find_in_sync_needed(state):
            message = f"{len(state.isr)} in-sync replicas, min.insync.replicas={config.min_insync_replicas}"
            error = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, message)
            raise self._refused.explain(header, error)
        return state

    def append(self, records: memoryview, header: BatchHeader, now_ms: int, acks: int) -> Appended:
        """Append one checked batch. Consumers can read it once the high watermark has passed it."""
        return self.append_admitted(self.admit(header, acks), records, header, now_ms)

    def append_admitted(self, state: PartitionImage, records: memoryview, header: BatchHeader, now_ms: int) -> Appended:
        """Like `append`, for a caller that has just called `admit`."""
        config, log = self.config, self.log
        if config.message_timestamp_type == "LogAppendTime":
            header = batch.set_append_time(records, now_ms)
        try:
            appended = log.append(records, header, state.leader_epoch, now_ms)
        except KafkaError as error:
            self.note_refusal(error.__cause__)
            if error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._isr_proposer is not None:
                producers, epoch_start = log.producers.producers, log.epochs.latest_start
                raise self._refused.explain_gap(header, error, producers, epoch_start) from None
            raise self._refused.explain(header, error) from error.__cause__
        if self._refused:
            self._refused.note_append(header)
        if not appended.is_duplicate:
            meter = self.meter
            meter.messages_in += header.record_count
            meter.bytes_in += len(records)
            if log.end_offset - log.recovery_point >= config.flush_messages:
                self.flushing.request()
            elif log.has_unflushed_sealed_segment:
                # As Kafka does after a roll: nobody waits for it, but recovery then need not read sealed segments.
                self.flushing.start()
            self._move_high_watermark()
            if self.end_moved.watchers:
                self.end_moved.wake()
        return appended

    def wait_for_acks(self, appended: Appended, acks: int) -> asyncio.Future[None] | None:
        """A future that is done when the append may be acknowledged; None if it may be at once."""
        wanted = appended.last_offset + 1
        if acks == -1:
            return None if self.high_watermark.value >= wanted else self.high_watermark.reach(wanted)
        if acks == 1 and self.flushing.wanted >= wanted > self.durable.value:
            return self.durable.reach(wanted)
        return None

    def delete_records(self, offset: int | None) -> int:
        """Delete the records below `offset` (None: below the high watermark). Returns the new log start offset."""
        high_watermark = self.high_watermark.value
        if offset is None:
            offset = high_watermark
        if not 0 <= offset <= high_watermark:
            message = f"offset {offset} is not between 0 and the high watermark {high_watermark}"
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        if self.config.cleanup_policy == ("compact",):
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION, "cleanup.policy is compact: records of such a topic cannot be deleted"
            )
        try:
            self.log.advance_log_start(offset)
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self}: {error}") from error
        self.end_moved.wake()  # followers move their log start as soon as they know
        return self.log.log_start_offset

    def expire(self, now_ms: int) -> bool:
        """Retention: move the log start past segments that are too old or too much. Returns whether it moved.

        The files are deleted later, when the new log start is on disk. OSError if the disk fails.
        """
        log = self.log
        found = find_expired(log, self.last_stable_offset, now_ms)
        if found is None:
            return False
        start = found.log_start_offset
        if found.with_active:
            try:
                log.roll(now_ms)
            except KafkaError as error:
                logger.warning("%s: retention keeps the active segment: %s", self, error.message)
                start = log.segments[-1].base_offset
        for reason, bases in (
            (f"older than retention.ms={self.config.retention_ms}", found.old),
            (f"more than retention.bytes={self.config.retention_bytes}", found.excess),
        ):
            gone = [str(base) for base in bases if base < start]
            if gone:
                logger.info("%s: retention drops segments %s: %s", self, ", ".join(gone), reason)
        return log.advance_log_start(start)

    def note_refusal(self, cause: BaseException | None) -> None:
        """A full disk has refused a write, so another replica should lead."""
        if self._isr_proposer is not None and isinstance(cause, OSError) and is_full(cause):
            self._isr_proposer.note_full_disk(self.topic_id, self.index)

    # Following

    def append_as_follower(self, records: Bytes, now_ms: int) -> None:
        """Append whole batches that the leader sent. KafkaError if they are damaged or the disk refuses them."""
        log = self.log
        try:
            appended = log.append_as_follower(records, now_ms)
        except KafkaError as error:
            self.note_refusal(error.__cause__)
            raise
        if appended is None:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{self}: {len(records)} bytes from the leader are no batch")
        if log.end_offset - log.recovery_point >= self.config.flush_messages:
            self.flushing.request()
        elif log.has_unflushed_sealed_segment:
            self.flushing.start()

    def follow_leader(self, high_watermark: int, log_start_offset: int) -> None:
        """Take over the leader's high watermark and log start, as far as this log goes."""
        log = self.log
        if high_watermark > self.high_watermark.value:
            self.high_watermark.advance(min(high_watermark, log.end_offset))
        if log_start_offset > log.log_start_offset:
            log.advance_log_start(min(log_start_offset, log.end_offset))
            self.high_watermark.advance(log.log_start_offset)

    def wait_until_durable(self) -> asyncio.Future[None] | None:
        """With flush.messages=1 a follower's next fetch says that its records are on disk: what it has to wait for."""
        end_offset = self.log.end_offset
        if self.config.flush_messages != 1 or self.log.recovery_point >= end_offset:
            return None
        self.flushing.request()
        return self.durable.reach(end_offset)

    def lower_watermarks(self, error: KafkaError) -> None:
        """The log was truncated. Requests that wait for a later offset get `error`."""
        self.high_watermark.retreat(self.log.end_offset, error)
        self.high_watermark.advance(self.log.log_start_offset)
        self.durable.retreat(self.log.recovery_point, error)

    # Flushing

    def note_flushed(self) -> None:
        """More of the log is on disk."""
        self.durable.advance(self.log.recovery_point)
        self._move_high_watermark()

    def fail(self, reason: str) -> None:
        """The disk failed. After a failed fsync nobody knows what is on it, so this log accepts no more records."""
        self.log.fail(reason)
        if self.log.on_disk_failure is not None:
            self.log.on_disk_failure(f"{self}: {reason}")
        self.fail_waiters(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason))

    def configure(self, config: TopicConfig, settings: LogSettings) -> None:
        """Use changed settings, from the next batch on."""
        self.config = config
        self.rules = Rules.of(config)
        self.log.settings = settings
        if self.log.end_offset - self.log.recovery_point >= config.flush_messages:
            self.flushing.request()  # whoever waits for these records may send no others, which would be flushed
        self._move_high_watermark()

    def switch_log(self, log: Log) -> None:
        """Go on with a copy of the log that has the same records, in another data directory."""
        log.settings, log.producers = self.log.settings, self.log.producers
        log.first_dirty_offset = self.log.first_dirty_offset
        log.advance_log_start(self.log.log_start_offset)
        self.log.abandon()
        self.log = log
        self.note_flushed()  # a flush of the old log may be under way, and the copy may need none

    def retire(self, error: KafkaError) -> None:
        """Stop serving this replica. Requests that wait for it get `error`."""
        self.state = None
        self.in_sync = None
        self.log.abandon()
        self.fail_waiters(error)
        self.end_moved.wake()

    # Followers, on the leader

    def require_follower(self, broker_id: int, current_leader_epoch: int) -> InSync:
        """KafkaError if the broker is not a follower of this leader."""
        in_sync = self.in_sync
        if in_sync is None or broker_id not in in_sync.followers:
            # A follower that sends the right epoch may know of a reassignment that this broker has not seen yet.
            known = current_leader_epoch >= 0
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH if known else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return in_sync

    def note_follower_fetch(
        self, broker_id: int, broker_epoch: int, offset: int, log_start_offset: int, now: float
    ) -> None:
        """A follower fetches from `offset`, so it has every record below. KafkaError if it is not a follower."""
        in_sync = self.require_follower(broker_id, UNKNOWN)
        log_start_before = in_sync.followers[broker_id].log_start_offset
        if not in_sync.note_fetch(broker_id, broker_epoch, offset, log_start_offset, self.log.end_offset, now):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {broker_id} has a newer epoch")
        self._move_high_watermark()
        if log_start_offset != log_start_before:
            self.high_watermark.wake()  # a client that deletes records waits for that
        if broker_id not in in_sync.state.isr:
            self._propose_joining()

    def must_start_anew(self, broker_id: int, offset: int, log_start_offset: int) -> bool:
        """Whether a follower with records from `log_start_offset` to `offset` cannot go on from there.

        It would bring deleted keys back, and leave transactions open for ever (see `storage/removed_deletes.py`).
        """
        in_sync, removed_before = self.in_sync, self.log.removed_deletes.before
        return in_sync is not None and in_sync.must_start_anew(broker_id, offset, log_start_offset, removed_before)

    def low_watermark(self, alive: Container[int]) -> int:
        """The smallest log start of this leader and of those followers that are `alive`."""
        start = self.log.log_start_offset
        return start if self.in_sync is None else self.in_sync.low_watermark(start, alive)

    def wants_other_isr(self) -> bool:
        """Whether a member of the ISR has not caught up for replica.lag.time.max.ms, or another follower can join.

        The high watermark moves if it has waited for a follower outside the ISR that lags now, or was fenced.
        """
        in_sync, proposer = self.in_sync, self._isr_proposer
        if in_sync is None or proposer is None:
            return False
        self._move_high_watermark()
        wanted = in_sync.choose_isr(self.high_watermark.value, self.log.end_offset, proposer)
        return sorted(wanted) != sorted(in_sync.state.isr)

    def _propose_joining(self) -> None:
        in_sync, proposer = self.in_sync, self._isr_proposer
        if in_sync is not None and proposer is not None and in_sync.has_joining(self.high_watermark.value, proposer):
            proposer.add(self)

    def propose_isr(self, broker_epochs: Mapping[int, int]) -> tuple[tuple[int, int], ...] | None:
        """The ISR that the leader wants, as broker ids with their epochs; None if it has it, or does not lead.

        From this call on the new members count for the high watermark, until `settle_isr` or a new partition epoch.
        `broker_epochs` has the epoch of each registered broker, for members that have not fetched from this leader.
        """
        in_sync, proposer = self.in_sync, self._isr_proposer
        if in_sync is None or proposer is None:
            return None
        wanted = in_sync.choose_isr(self.high_watermark.value, self.log.end_offset, proposer)
        if sorted(wanted) == sorted(in_sync.state.isr):
            return None
        in_sync.begin_proposal(wanted)
        epochs = dict(broker_epochs)
        for broker, follower in in_sync.followers.items():
            if follower.broker_epoch != UNKNOWN:
                epochs[broker] = follower.broker_epoch
        return tuple((broker, epochs.get(broker, UNKNOWN)) for broker in wanted)

    def settle_isr(self) -> None:
        """No proposal that `propose_isr` returned is still on its way to the metadata."""
        if self.in_sync is not None:
            self.in_sync.end_proposal()
            self._move_high_watermark()
            self._propose_joining()

    # The high watermark

    @property
    def has_enough_in_sync(self) -> bool:
        """Whether as many replicas are in sync as min.insync.replicas asks for, so that acks=all can be served."""
        state = self.state
        return state is not None and len(state.isr) >= self._find_in_sync_needed(state)

    def _find_in_sync_needed(self, state: PartitionImage) -> int:
        # As in Kafka, a topic with fewer replicas than min.insync.replicas can still be written to.
        return min(self.config.min_insync_replicas, len(state.replicas))

    def _move_high_watermark(self) -> None:
        state = self.state
        if state is None or state.leader != self.broker_id:
            return
        end = self.log.end_offset
        committed = self.log.recovery_point if self.config.flush_messages == 1 else end
        in_sync = self.in_sync
        if in_sync is not None:
            if len(state.isr) < self._find_in_sync_needed(state):
                return
            committed = in_sync.find_committed(committed, end, self._isr_proposer)
        self.high_watermark.advance(committed)

    @property
    def copied_by_all(self) -> int:
        """The offset before which every replica has all records, also those that are not in sync.

        Only a leader knows it; on a follower it is 0. Compaction removes tombstones and transaction markers only before
        it. A replica that had copied a value and not yet its tombstone would otherwise have to start anew.
        """
        if not self.is_leader:
            return 0
        followers = () if self.in_sync is None else self.in_sync.followers.values()
        return min((self.log.end_offset, *(max(follower.end_offset, 0) for follower in followers)))

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """The largest epoch of this log that is not above `epoch`, and its end offset."""
        return self.log.epochs.end_offset_for(epoch, self.log.end_offset)

    @property
    def last_stable_offset(self) -> int:
        return self.log.last_stable_offset(self.high_watermark.value)

    # Reading

    def read(self, offset: int, max_bytes: int, *, read_committed: bool, at_least_one: bool) -> PartitionRead:
        """What a consumer reads."""
        log = self.log
        high_watermark = self.high_watermark.value
        stable = log.last_stable_offset(high_watermark)
        up_to = stable if read_committed else high_watermark
        if not log.log_start_offset <= offset <= log.end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        found = log.read(offset, max_bytes, up_to=up_to, at_least_one=at_least_one) if offset < up_to else None
        aborted = None
        if read_committed:
            aborted = log.aborted_transactions(offset, found.next_offset) if found is not None else []
        return PartitionRead(
            found.slice if found is not None else None, high_watermark, stable, log.log_start_offset, aborted
        )

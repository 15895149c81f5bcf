"""Loads, runs, wakes and drops the machines of one internal topic on this broker."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from random import Random
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from ottla.cluster.decision import Decision
from ottla.cluster.image import BrokerImage, Image, TopicImage
from ottla.cluster.metadata import Metadata
from ottla.config import BrokerConfig
from ottla.coordinators.formats import RecordFormat
from ottla.coordinators.internal_topics import InternalTopic, key_hash
from ottla.coordinators.machine import NOBODY, Machine, Meters, Outcome, ProducerIdentity, Reply, Ticket, Turn
from ottla.coordinators.runtime.loading import read_batches
from ottla.coordinators.runtime.shard import LATER, Shard
from ottla.errors import ErrorCode, KafkaError
from ottla.records import batch
from ottla.records.batch import CorruptBatch
from ottla.records.compression import NONE, ZSTD, compress
from ottla.records.record import write_record
from ottla.replication.replicas import Replicas
from ottla.replication.transactions import TransactionMarker, append_marker
from ottla.system.clock import Clock
from ottla.system.threads import Offload

logger = logging.getLogger(__name__)

M = TypeVar("M", bound=Machine)

Decide = Callable[[M, Turn], Outcome]
"""Calls a method of the machine: the body of a turn."""

Perform = Callable[[Any, int], Decide[M] | Coroutine[Any, Any, Decide[M] | None]]
"""Runs an errand: the side effect that a turn asked for, such as writing transaction markers. The number is the epoch
in which the machine coordinates. Returns the follow-up turn if the errand finished at once, otherwise a coroutine that
returns it, or None if there is none."""

LOAD_BYTES = 64 << 10
"""Bytes replayed per step while loading. A step takes a few milliseconds, then the event loop can serve other work."""

RELOAD_DELAY_S = 0.1
RELOAD_DELAY_MAX_S = 30.0
"""How long to wait before a machine is loaded again after a failure. The delay doubles with each failure."""

CREATION_TIMEOUT_S = 5.0
"""How long a request waits for the creation of the internal topic, if the metadata cannot be changed at once."""

FINISH_LOADING = "finish_loading"

BELOW_MIN_ISR_S = 0.5
"""How often a machine's timer looks whether enough replicas are in sync again, after it found too few."""

TIMER_MAX_S = 86_400.0
"""Timers are set for a day ahead at most; one that fires too early is set again."""

_NO_PRODUCER = ProducerIdentity(-1, -1)

_CLIENT_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""Which error code a coordinator's client receives when an append to the internal topic fails."""


_REFUSALS = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.NOT_ENOUGH_REPLICAS)
"""Errors of an append that leave the log as it was, so that an outcome which may be refused needs no reload."""


def refuse_errand(errand: Any, epoch: int) -> Any:
    raise AssertionError(f"a machine asked for the errand {errand!r}, and this coordinator runs none")


class Reload(NamedTuple):
    """A partition that is to be loaded again after a failure."""

    epoch: int
    """The leader epoch in which loading failed."""
    timer: asyncio.TimerHandle


class CoordinatorContext(NamedTuple):
    """The parts of the broker that a coordinator uses."""

    broker_id: int
    metadata: Metadata
    replicas: Replicas
    clock: Clock
    random: Random
    offload: Offload
    config: Callable[[], BrokerConfig]
    """Returns the settings that are in force now."""
    meters: Meters
    is_member: bool = False
    """Whether this broker belongs to a cluster of several."""


class Coordinator(Generic[M]):
    """Runs the machines of one internal topic. A subclass adds a method for each operation that it offers."""

    OPERATIONS: ClassVar[tuple[str, ...]]
    """Names of the operations that a subclass offers, for metrics and logs."""
    RUN_BELOW_MIN_ISR: ClassVar[frozenset[str]] = frozenset()
    """Operations that run while too few replicas are in sync for a write. They write nothing, or nothing but outcomes
    that may be refused. All others get COORDINATOR_NOT_AVAILABLE before their turn: a turn whose records cannot be
    appended would cost a reload of the machine."""

    def __init__(
        self,
        topic: InternalTopic,
        form: RecordFormat,
        machine: Callable[[], M],
        context: CoordinatorContext,
        perform: Perform[M] = refuse_errand,
    ) -> None:
        self.perform = perform
        self._topic = topic
        self._form = form
        self._new_machine = machine
        (
            self._broker_id,
            self._metadata,
            self._replicas,
            self._clock,
            self._random,
            self._offload,
            self._config,
            self.meters,
            self._is_member,
        ) = context
        self._shards: dict[int, Shard[M]] = {}
        self._failures: dict[int, int] = {}
        self._reloads: dict[int, Reload] = {}
        self._tickets = 0
        self._is_stopped = False
        self._creation_problem = ""
        """Why the topic could not be created at the last attempt."""
        self.longest_load_s = 0.0
        """How long the slowest load of a partition took, since the broker started."""
        self.operations = dict.fromkeys(self.OPERATIONS, 0)
        """How often each named operation was asked for, since the broker started."""

    # Where a key is kept

    def partition_for(self, key: str) -> int:
        """The partition of the topic that keeps this key, or will keep it once the topic is created."""
        topic = self._metadata.image.topic(self._topic.name)
        return key_hash(key) % (len(topic.partitions) if topic else self._topic.partitions(self._config()))

    async def create_topic(self) -> TopicImage:
        """Returns the topic, and creates it on first use. COORDINATOR_NOT_AVAILABLE if it cannot be created."""
        topic = self._metadata.image.topic(self._topic.name)
        if topic is None:
            try:
                await self._metadata.change(self._decide_topic, CREATION_TIMEOUT_S)
            except KafkaError as error:
                if error.message != self._creation_problem:  # clients ask again every 100 ms
                    logger.error("the internal topic %s cannot be created: %s", self._topic.name, error)
                self._creation_problem = error.message
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from None
            self._creation_problem = ""
            topic = self._metadata.image.topic(self._topic.name)
            if topic is None:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self._topic.name} was deleted")
        return topic

    def _decide_topic(self, image: Image) -> Decision[None]:
        return self._topic.create(image, self._config(), self._random, is_member=self._is_member)

    async def find_broker(self, key: str) -> BrokerImage:
        """The broker that coordinates this key. COORDINATOR_NOT_AVAILABLE if the key's partition has no leader."""
        topic = self._metadata.image.topic(self._topic.name) or await self.create_topic()
        broker = self._metadata.image.broker(topic.partitions[key_hash(key) % len(topic.partitions)].leader)
        if broker is None or broker.fenced:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the coordinator's partition has no leader")
        return broker

    # What the named operations of a subclass are made of

    async def run(self, operation: str, key: str, decide: Decide[M]) -> Any:
        """Run one turn of the machine that keeps the key and return the reply, once it is there.

        KafkaError if the machine refuses, or if this broker does not coordinate the key now.
        """
        if self._metadata.image.topic(self._topic.name) is None:
            await self.create_topic()
        reply = self.answer(operation, key, decide)
        return await reply if asyncio.iscoroutine(reply) else reply

    def answer(self, operation: str, key: str, decide: Decide[M]) -> Any | Coroutine[Any, Any, Any]:
        """Like `run`, but returns the reply itself if it is ready at once, as it nearly always is."""
        topic = self._metadata.image.topic(self._topic.name)
        if topic is None:
            return self.run(operation, key, decide)
        self.operations[operation] += 1
        return self._ask(operation, self._require_active(key_hash(key) % len(topic.partitions)), decide)

    def _ask(self, operation: str, shard: Shard[M], decide: Decide[M]) -> Any | Coroutine[Any, Any, Any]:
        if not shard.partition.has_enough_in_sync and operation not in self.RUN_BELOW_MIN_ISR:
            message = f"{shard.partition} has fewer in-sync replicas than min.insync.replicas"
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)
        self._tickets = ticket = self._tickets + 1
        reply = self._turn(operation, shard, decide, ticket)
        if isinstance(reply, asyncio.Future):
            return self._reply(shard, ticket, reply)
        if isinstance(reply, KafkaError):
            raise reply
        return reply

    async def _reply(self, shard: Shard[M], ticket: Ticket, future: asyncio.Future[Any]) -> Any:
        try:
            reply = await future
        finally:
            shard.waiting.pop(ticket, None)
        if isinstance(reply, KafkaError):
            raise reply
        return reply

    async def run_all(self, operation: str, decide: Decide[M]) -> list[Any]:
        """Run one turn of every machine on this broker. COORDINATOR_LOAD_IN_PROGRESS until all are loaded."""
        self.operations[operation] += 1
        indexes = sorted(self._shards)
        for index in indexes:
            self._require_active(index)
        replies: list[Any] = []
        try:
            replies.extend(self._ask(operation, self._require_active(index), decide) for index in indexes)
        except KafkaError:
            for reply in replies:
                if asyncio.iscoroutine(reply):
                    reply.close()
            raise
        later = iter(await asyncio.gather(*(reply for reply in replies if asyncio.iscoroutine(reply))))
        return [next(later) if asyncio.iscoroutine(reply) else reply for reply in replies]

    def tell_all(self, operation: str, decide: Decide[M]) -> None:
        """Run one turn of every loaded machine; nobody waits for a reply."""
        self.operations[operation] += 1
        for _, shard in sorted(self._shards.items()):
            if shard.is_loaded:
                self._turn_alone(operation, shard, decide)

    def end_transaction(
        self, partition: int, marker: TransactionMarker, leader_epoch: int = -1
    ) -> asyncio.Future[None] | None:
        """Append a marker to a partition of this topic and end the transaction in its machine, in one step.

        Returns, and raises, what `append_marker` does.
        """
        shard = self._require_active(partition)
        replicated = append_marker(shard.partition, marker, self._clock.now_ms(), leader_epoch)
        shard.machine.end_transaction(ProducerIdentity(marker.producer_id, marker.epoch), marker.committed)
        shard.end = shard.partition.log.end_offset
        self._set_timer(shard)
        return replicated

    # What operators see

    @property
    def loading_count(self) -> int:
        """How many partitions this broker leads whose machines are not loaded yet."""
        return sum(not shard.is_loaded for shard in self._shards.values()) + len(self._reloads)

    def machines(self) -> list[M]:
        """The loaded machines, for reading only."""
        return [shard.machine for _, shard in sorted(self._shards.items()) if shard.is_loaded]

    # Following the metadata

    def apply(self, before: Image, after: Image) -> None:
        """Follow a change of the metadata. The replicas must have followed it already."""
        if before.topic(self._topic.name) is not after.topic(self._topic.name):
            self.follow(after)

    def follow(self, image: Image) -> None:
        """Load a machine for every partition that this broker leads, and drop those of all others."""
        if self._is_stopped:
            return
        topic = image.topic(self._topic.name)
        led = {
            index: state.leader_epoch
            for index, state in enumerate(topic.partitions if topic else ())
            if state.leader == self._broker_id
        }
        for index in sorted(self._shards):
            shard = self._shards[index]
            if led.get(index) != shard.epoch or topic is None or topic.id != shard.partition.topic_id:
                self._drop(shard, KafkaError(ErrorCode.NOT_COORDINATOR))
        for index in [index for index, reload in self._reloads.items() if led.get(index) != reload.epoch]:
            self._reloads.pop(index).timer.cancel()
            self._failures.pop(index, None)
        for index, epoch in led.items():
            if index not in self._shards and index not in self._reloads:
                self._start_loading(index, epoch)

    def stop(self) -> None:
        """Drop all machines. Requests that wait fail with NOT_COORDINATOR."""
        self._is_stopped = True
        for reload in self._reloads.values():
            reload.timer.cancel()
        for shard in list(self._shards.values()):
            self._drop(shard, KafkaError(ErrorCode.NOT_COORDINATOR, "the broker is stopping"))

    # Loading

    def _start_loading(self, index: int, epoch: int) -> None:
        try:
            partition = self._replicas.get(self._topic.name, index)
            partition.require_leader()
            partition.require_epoch(epoch)
        except KafkaError:  # the replica is not created yet, or cannot be, as on a full disk
            self._retry_loading_later(index, epoch)
            return
        shard = self._shards[index] = Shard(partition, self._new_machine(), self._start_errand)
        shard.watcher = lambda: self._on_watermark_moved(shard)
        partition.high_watermark.watch(shard.watcher)
        if partition.log.log_start_offset == partition.log.end_offset:
            self._finish_loading(shard, partition.log.end_offset)
        else:
            shard.start(self._load(shard))

    def _retry_loading_later(self, index: int, epoch: int) -> None:
        failures = self._failures.get(index, 0)
        self._failures[index] = failures + 1
        delay_s = min(RELOAD_DELAY_S * 2 ** min(failures, 16), RELOAD_DELAY_MAX_S)
        timer = asyncio.get_running_loop().call_later(delay_s, self._load_again, index)
        self._reloads[index] = Reload(epoch, timer)

    def _load_again(self, index: int) -> None:
        del self._reloads[index]
        self.follow(self._metadata.image)

    async def _load(self, shard: Shard[M]) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            end = await self._replay_log(shard)
        except (KafkaError, CorruptBatch, OSError) as error:
            logger.error("%s: the coordinator cannot be loaded: %s", shard.partition, error)
            self._fail(shard, KafkaError(ErrorCode.NOT_COORDINATOR, "the coordinator's log cannot be read"))
            return
        self.longest_load_s = max(self.longest_load_s, loop.time() - began)
        self._finish_loading(shard, end)

    async def _replay_log(self, shard: Shard[M]) -> int:
        log = shard.partition.log
        offset, end = log.log_start_offset, log.end_offset
        while offset < end:
            found = log.read(offset, LOAD_BYTES, up_to=end, at_least_one=True)
            if found is None:
                break
            found.slice.file.pin()
            try:
                batches = await self._offload(read_batches, found.slice, self._form)
            finally:
                found.slice.file.unpin()
            for stored in batches:
                if stored.next_offset > offset:
                    stored.replay_into(shard.machine)
                    offset = stored.next_offset
        return end

    def _finish_loading(self, shard: Shard[M], end: int) -> None:
        shard.is_loaded = True
        shard.end = end
        self._turn_alone(FINISH_LOADING, shard, lambda machine, turn: machine.finish_loading(turn))

    # Turns

    def _require_active(self, index: int) -> Shard[M]:
        shard = self._shards.get(index)
        if shard is None:
            failed = index in self._reloads
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if failed else ErrorCode.NOT_COORDINATOR)
        if not shard.is_loaded:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return shard

    def _turn(self, operation: str, shard: Shard[M], decide: Decide[M], ticket: Ticket) -> Any:
        """Run one turn. Returns the reply to the ticket, or a future for it."""
        turn = Turn(
            _read_monotonic_ms(), self._clock.now_ms(), self._metadata.image, self._config(), self.meters, ticket
        )
        try:
            outcome = decide(shard.machine, turn)
        except KafkaError as error:
            if shard.is_committed or ticket == NOBODY:
                raise
            outcome = Outcome(replies=(Reply(ticket, error),))  # records that may yet be lost led to this refusal
        if outcome.records:
            self._append(operation, shard, outcome, turn.wall_ms)
        else:
            for effect in outcome.effects:
                effect()
        own: Any = LATER
        if shard.is_committed:
            own = shard.hand_out(outcome.replies, outcome.errands, ticket)
        elif outcome.replies or outcome.errands:
            deadline_ms = turn.monotonic_ms + turn.config.offsets_commit_timeout_ms
            shard.postpone(operation, outcome.replies, outcome.errands, deadline_ms)
        self._set_timer(shard)
        return shard.wait(ticket) if own is LATER and ticket != NOBODY else own

    def _turn_alone(self, operation: str, shard: Shard[M], decide: Decide[M]) -> None:
        """Run a turn that no client waits for. It is put off while too few replicas are in sync for what it writes."""
        if not shard.partition.has_enough_in_sync and operation != FINISH_LOADING:
            shard.delayed.append((operation, decide))
            return
        try:
            self._turn(operation, shard, decide, NOBODY)
        except KafkaError as error:
            logger.warning("%s: %s was refused: %s", shard.partition, operation, error)
        except Exception as error:
            logger.exception("%s: %s failed; the coordinator is loaded again", shard.partition, operation)
            self._fail(shard, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)))

    def _append(self, operation: str, shard: Shard[M], outcome: Outcome, now_ms: int) -> None:
        try:
            data = self._encode(shard, outcome, now_ms)
            appended = shard.partition.append(memoryview(data), batch.read_header(data), now_ms, -1)
            for effect in outcome.effects:
                effect()
            for record in outcome.records:
                shard.machine.replay(record, now_ms, outcome.producer)
        except KafkaError as error:
            if outcome.producer is not None and error.code is ErrorCode.INVALID_PRODUCER_EPOCH:
                raise  # a fenced producer: nothing was appended or replayed, so the machine is still right
            logger.warning("%s: the records of %s cannot be appended: %s", shard.partition, operation, error)
            refusal = KafkaError(_CLIENT_ERRORS.get(error.code, error.code), error.message)
            if outcome.may_be_refused and error.code in _REFUSALS:
                shard.hand_out([Reply(ticket, refusal) for ticket, _ in outcome.replies])
            else:
                self._fail(shard, refusal)
            raise refusal from None
        except Exception as error:
            self._fail(shard, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)))
            raise
        shard.end = appended.last_offset + 1
        self._failures.pop(shard.partition.index, None)
        if shard.is_dropped:  # the disk failed during the append: the reply would never be sent
            raise KafkaError(ErrorCode.NOT_COORDINATOR)

    def _encode(self, shard: Shard[M], outcome: Outcome, now_ms: int) -> bytearray:
        """Encode the records as one batch. It is compressed only if it is too large, as that of a very large group."""
        data = bytearray(batch.HEADER_SIZE)
        for number, record in enumerate(outcome.records):
            key, value = self._form.encode(record)
            write_record(data, 0, number, key, value, ())
        codec = NONE
        if len(data) > shard.partition.config.max_message_bytes:
            codec = ZSTD
            data[batch.HEADER_SIZE :] = compress(codec, data[batch.HEADER_SIZE :])
        producer = outcome.producer or _NO_PRODUCER
        batch.seal_client_batch(
            data,
            len(outcome.records),
            now_ms,
            codec=codec,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            transactional=outcome.producer is not None,
        )
        return data

    def _start_errand(self, shard: Shard[M], errand: Any) -> None:
        if shard.is_dropped:  # by the end of an errand of the same turn: when the shard is loaded again, it asks anew
            return
        name = type(errand).__name__
        try:
            performed = self.perform(errand, shard.epoch)
        except Exception as error:
            logger.exception("%s: the errand %s failed; the coordinator is loaded again", shard.partition, name)
            self._fail(shard, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)))
            return
        if asyncio.iscoroutine(performed):
            shard.start(performed, partial(self._end_errand, name, shard))
        else:
            self._turn_alone(name, shard, performed)

    def _end_errand(self, name: str, shard: Shard[M], decide: Decide[M] | None) -> None:
        if decide is not None and not shard.is_dropped:
            self._turn_alone(name, shard, decide)

    def _on_watermark_moved(self, shard: Shard[M]) -> None:
        partition = shard.partition
        if not partition.is_leader or partition.leader_epoch != shard.epoch:
            self._drop(shard, KafkaError(ErrorCode.NOT_COORDINATOR))
        elif partition.log.has_failed:
            self._fail(shard, KafkaError(ErrorCode.NOT_COORDINATOR, "the coordinator's disk failed"))
        else:
            shard.settle()
            if shard.delayed and partition.has_enough_in_sync:  # not now: this may be within another turn
                asyncio.get_running_loop().call_soon(self._run_delayed, shard)

    def _run_delayed(self, shard: Shard[M]) -> None:
        while shard.delayed and shard.partition.has_enough_in_sync:
            operation, decide = shard.delayed.popleft()
            self._turn_alone(operation, shard, decide)

    # Timers

    def _set_timer(self, shard: Shard[M]) -> None:
        """Make sure that a timer is due no later than the machine wants to be woken.

        A timer that is due earlier is left as it is, and sets itself again when it fires: every heartbeat puts off a
        machine's time, and moving the timer each time would cost more.
        """
        if shard.is_dropped:
            return
        due_ms = shard.machine.wake_at
        deadline_ms = shard.deadline_ms
        if deadline_ms is not None and (due_ms is None or deadline_ms < due_ms):
            due_ms = deadline_ms
        if due_ms is None:
            return
        due_s = due_ms / 1000
        if shard.timer is not None:
            if shard.timer_due_s <= due_s:
                return
            shard.timer.cancel()
        loop = asyncio.get_running_loop()
        shard.timer_due_s = min(due_s, loop.time() + TIMER_MAX_S)
        shard.timer = loop.call_at(shard.timer_due_s, self._on_timer, shard)

    def _on_timer(self, shard: Shard[M]) -> None:
        shard.timer = None
        now_ms = _read_monotonic_ms()
        shard.give_up(now_ms)
        if not shard.partition.has_enough_in_sync:  # what a machine does when it wakes is nearly always to write
            loop = asyncio.get_running_loop()
            shard.timer_due_s = loop.time() + BELOW_MIN_ISR_S
            shard.timer = loop.call_at(shard.timer_due_s, self._on_timer, shard)
            return
        wake_at = shard.machine.wake_at
        if wake_at is not None and wake_at <= now_ms:
            self._turn_alone("wake", shard, lambda machine, turn: machine.wake(turn))
        else:
            self._set_timer(shard)

    # Ends

    def _fail(self, shard: Shard[M], error: KafkaError) -> None:
        """Drop a machine whose state may differ from its log, and load it again later."""
        if not shard.is_dropped:
            self._drop(shard, error)
            if not self._is_stopped:
                self._retry_loading_later(shard.partition.index, shard.epoch)

    def _drop(self, shard: Shard[M], error: KafkaError) -> None:
        if not shard.is_dropped:
            shard.drop(error)
            self._shards.pop(shard.partition.index, None)


def _read_monotonic_ms() -> int:
    """Rounded, not truncated: a timer that is due at 5.123 s must not read 5122 ms and set itself again and again."""
    return round(asyncio.get_running_loop().time() * 1000)

"""Runs coordinators' machines: one for each partition of an internal topic that this broker leads.

The only part of the coordinators that waits. A turn calls a machine, appends what it decided, replays it, and hands out
the replies when the high watermark has passed everything that the machine knows. A partition whose leadership comes is
loaded from its log; one whose leadership goes, or that cannot be appended to, is dropped: whoever waits is told, and if
it is still this broker's it is loaded again.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Generic, NamedTuple, TypeVar

from ottla import batch
from ottla.batch import CorruptBatch
from ottla.clock import Clock
from ottla.cluster.image import Image, TopicImage
from ottla.cluster.metadata import Metadata
from ottla.compression import NONE, ZSTD
from ottla.config import BrokerConfig
from ottla.coordinators.formats import RecordFormat
from ottla.coordinators.internal_topics import InternalTopic, key_hash
from ottla.coordinators.loading import read_batches
from ottla.coordinators.machine import NOBODY, Machine, Outcome, Producer, Reply, Ticket, Turn
from ottla.errors import ErrorCode, KafkaError
from ottla.replication.partition import Partition
from ottla.replication.replicas import Replicas
from ottla.replication.transactions import TransactionMarker, append_marker
from ottla.threads import Offload

logger = logging.getLogger(__name__)

M = TypeVar("M", bound=Machine)

Decide = Callable[[M, Turn], Outcome]

Perform = Callable[[Any, int], Awaitable[Decide[M] | None]]
"""Does an errand, told in which coordinator epoch; its end is another turn, or nothing."""

LOAD_BYTES = 64 << 10
"""Read at once when loading: a few milliseconds of replay, then others have their turn."""

RELOAD_DELAY_S = 0.1
RELOAD_DELAY_MAX_S = 30.0
TIMER_MAX_S = 86_400.0

LATER: Final = object()
"""Instead of a reply: it will come."""

_ANSWERS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""A failed append, as the client of a coordinator may hear of it."""


class Surroundings(NamedTuple):
    """What a coordinator needs of its broker."""

    broker_id: int
    metadata: Metadata
    replicas: Replicas
    clock: Clock
    random: Random
    offload: Offload
    config: Callable[[], BrokerConfig]
    """The settings of this moment."""


@dataclass(slots=True)
class Unsettled:
    """Replies that wait until the log is committed up to an offset."""

    offset: int
    deadline_ms: int
    replies: Sequence[Reply]
    errands: Sequence[Any]


class Shard(Generic[M]):
    """One partition that this broker coordinates: its machine, and everyone who waits for it."""

    def __init__(self, partition: Partition, machine: M) -> None:
        self.partition = partition
        self.epoch = partition.leader_epoch
        self.machine = machine
        self.loaded = False
        self.dropped = False
        self.end = 0
        """After the last record that the machine knows."""
        self.waiting: dict[Ticket, asyncio.Future[Any]] = {}
        self.unsettled: deque[Unsettled] = deque()
        self.impatient: deque[Unsettled] = deque()
        """Those of the unsettled whose deadline has not come: the last of them."""
        self.timer: asyncio.TimerHandle | None = None
        self.tasks: dict[asyncio.Task[None], None] = {}
        self.watcher: Callable[[], None] | None = None


class Coordinator(Generic[M]):
    """All machines of one internal topic on this broker."""

    def __init__(
        self,
        topic: InternalTopic,
        form: RecordFormat,
        machine: Callable[[], M],
        around: Surroundings,
    ) -> None:
        self.perform: Perform[M] | None = None
        self._topic = topic
        self._form = form
        self._new_machine = machine
        self._broker_id, self._metadata, self._replicas, self._clock, self._random, self._offload, self._config = around
        self._shards: dict[int, Shard[M]] = {}
        self._failures: dict[int, int] = {}
        self._reloads: dict[int, asyncio.TimerHandle] = {}
        self._tickets = 0
        self._stopped = False

    # What handlers use

    def partition_for(self, key: str) -> int:
        """Which partition of the topic keeps this key. Before the topic is there: which one will."""
        topic = self._metadata.image.topic(self._topic.name)
        return key_hash(key) % (len(topic.partitions) if topic else self._topic.partitions(self._config()))

    async def create_topic(self) -> TopicImage:
        """The topic, created now if this is its first use. COORDINATOR_NOT_AVAILABLE if it cannot be."""
        topic = self._metadata.image.topic(self._topic.name)
        if topic is None:
            try:
                await self._metadata.change(lambda image: self._topic.creation(image, self._config(), self._random))
            except KafkaError as error:
                logger.error("%s cannot be created: %s", self._topic.name, error.message)
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from None
            topic = self._metadata.image.topic(self._topic.name)
            if topic is None:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self._topic.name} was deleted")
        return topic

    async def run(self, key: str, decide: Decide[M]) -> Any:
        """The reply to this turn, when it comes. KafkaError if the machine, or its state, says no."""
        if self._metadata.image.topic(self._topic.name) is None:
            await self.create_topic()
        return await self.run_in(self.partition_for(key), decide)

    async def run_in(self, partition: int, decide: Decide[M]) -> Any:
        """As `run`, for one who knows the partition."""
        reply = self._ask(self._active(partition), decide)
        return await reply if asyncio.iscoroutine(reply) else reply

    def answer(self, key: str, decide: Decide[M]) -> Any | Coroutine[Any, Any, Any]:
        """As `run`, but the reply itself where it is ready at once, as it nearly always is: no task is needed then."""
        if self._metadata.image.topic(self._topic.name) is None:
            return self.run(key, decide)
        return self._ask(self._active(self.partition_for(key)), decide)

    def _ask(self, shard: Shard[M], decide: Decide[M]) -> Any | Coroutine[Any, Any, Any]:
        self._tickets = ticket = self._tickets + 1
        reply = self._turn(shard, decide, ticket)
        if reply is LATER:
            return self._reply(shard, ticket)
        if isinstance(reply, KafkaError):
            raise reply
        return reply

    async def _reply(self, shard: Shard[M], ticket: Ticket) -> Any:
        future = shard.waiting[ticket]
        try:
            reply = await future
        finally:
            shard.waiting.pop(ticket, None)
        if isinstance(reply, KafkaError):
            raise reply
        return reply

    async def run_all(self, decide: Decide[M]) -> list[Any]:
        """The reply of every machine on this broker. COORDINATOR_LOAD_IN_PROGRESS until all are loaded."""
        indexes = sorted(self._shards)
        for index in indexes:
            self._active(index)
        return [await self.run_in(index, decide) for index in indexes if index in self._shards]

    def tell_all(self, decide: Decide[M]) -> None:
        """A turn of every loaded machine that nobody waits for."""
        for _, shard in sorted(self._shards.items()):
            if shard.loaded:
                self._turn_alone(shard, decide)

    async def end_transaction(self, partition: int, marker: TransactionMarker) -> None:
        """Write a marker into this topic's partition: the log's and the machine's transaction end in one step."""
        shard = self._active(partition)
        replicated = append_marker(shard.partition, marker, self._clock.now_ms())
        shard.machine.end_transaction(Producer(marker.producer_id, marker.epoch), marker.committed)
        shard.end = shard.partition.log.end_offset
        self._set_timer(shard)
        if replicated is not None:
            await replicated

    # What operators see

    @property
    def loading(self) -> int:
        """Partitions that this broker leads and cannot answer for yet."""
        return sum(not shard.loaded for shard in self._shards.values()) + len(self._reloads)

    def machines(self) -> list[M]:
        """Those that are loaded, to be looked at only."""
        return [shard.machine for _, shard in sorted(self._shards.items()) if shard.loaded]

    # Following the metadata

    def apply(self, before: Image, after: Image) -> None:
        """The metadata changed, and the replicas with it."""
        if before.topic(self._topic.name) is not after.topic(self._topic.name):
            self.follow(after)

    def follow(self, image: Image) -> None:
        """Have a machine for every partition that this broker leads, and for no other."""
        if self._stopped:
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
        for index in [index for index in self._reloads if index not in led]:
            self._reloads.pop(index).cancel()
        for index in led:
            if index not in self._shards:
                self._begin(index)

    def stop(self) -> None:
        """No more turns; those who wait are sent to look for another coordinator."""
        self._stopped = True
        for handle in self._reloads.values():
            handle.cancel()
        for shard in list(self._shards.values()):
            self._drop(shard, KafkaError(ErrorCode.NOT_COORDINATOR, "the broker stops"))

    # Loading

    def _begin(self, index: int) -> None:
        handle = self._reloads.pop(index, None)
        if handle is not None:
            handle.cancel()
        try:
            partition = self._replicas.get(self._topic.name, index)
        except KafkaError:  # the disk had no room for it
            self._begin_later(index)
            return
        shard = self._shards[index] = Shard(partition, self._new_machine())
        shard.watcher = lambda: self._watermark_moved(shard)
        partition.high_watermark.watch(shard.watcher)
        if partition.log.log_start_offset == partition.log.end_offset:
            self._loaded(shard, partition.log.end_offset)
        else:
            self._start(shard, self._load(shard))

    def _begin_later(self, index: int) -> None:
        failures = self._failures.get(index, 0)
        self._failures[index] = failures + 1
        delay_s = min(RELOAD_DELAY_S * 2 ** min(failures, 16), RELOAD_DELAY_MAX_S)
        loop = asyncio.get_running_loop()
        self._reloads[index] = loop.call_later(delay_s, lambda: self.follow(self._metadata.image))

    async def _load(self, shard: Shard[M]) -> None:
        try:
            end = await self._replay_log(shard)
        except (KafkaError, CorruptBatch, OSError) as error:
            logger.error("%s cannot be loaded: %s", shard.partition, error)
            self._fail(shard, KafkaError(ErrorCode.NOT_COORDINATOR, "the coordinator's log cannot be read"))
            return
        self._loaded(shard, end)

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

    def _loaded(self, shard: Shard[M], end: int) -> None:
        shard.loaded = True
        shard.end = end
        self._turn_alone(shard, lambda machine, turn: machine.loaded(turn))

    # Turns

    def _active(self, index: int) -> Shard[M]:
        shard = self._shards.get(index)
        if shard is None:
            failed = index in self._reloads
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if failed else ErrorCode.NOT_COORDINATOR)
        if not shard.loaded:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return shard

    def _turn(self, shard: Shard[M], decide: Decide[M], ticket: Ticket) -> Any:
        """The reply to the one who holds the ticket, or LATER: then there is a future in `waiting`."""
        turn = Turn(_monotonic_ms(), self._clock.now_ms(), self._metadata.image, self._config(), ticket)
        outcome = decide(shard.machine, turn)
        if outcome.records:
            self._append(shard, outcome, turn.wall_ms)
        own: Any = LATER
        if shard.partition.high_watermark.value >= shard.end:
            own = self._settle(shard, outcome.replies, outcome.errands, ticket)
        elif outcome.replies or outcome.errands:
            deadline_ms = turn.monotonic_ms + turn.config.offsets_commit_timeout_ms
            unsettled = Unsettled(shard.end, deadline_ms, outcome.replies, outcome.errands)
            shard.unsettled.append(unsettled)
            shard.impatient.append(unsettled)
        if own is LATER and ticket != NOBODY:
            shard.waiting[ticket] = asyncio.get_running_loop().create_future()
        self._set_timer(shard)
        return own

    def _turn_alone(self, shard: Shard[M], decide: Decide[M]) -> None:
        try:
            self._turn(shard, decide, NOBODY)
        except KafkaError as error:
            logger.warning("%s: %s", shard.partition, error)
        except Exception as error:
            logger.exception("%s: a turn failed; the coordinator is loaded again", shard.partition)
            self._fail(shard, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)))

    def _append(self, shard: Shard[M], outcome: Outcome, now_ms: int) -> None:
        try:
            data = self._encode(shard, outcome, now_ms)
            appended = shard.partition.append(memoryview(data), batch.read_header(data), now_ms, -1)
            for record in outcome.records:
                shard.machine.replay(record, now_ms, outcome.producer)
        except KafkaError as error:
            if outcome.producer is not None and error.code is ErrorCode.INVALID_PRODUCER_EPOCH:
                raise  # a producer of the past: the log is as sound as before, and nothing was replayed
            logger.warning("%s cannot be appended to: %s", shard.partition, error)
            told = KafkaError(_ANSWERS.get(error.code, error.code), error.message)
            if outcome.may_be_refused and error.code is ErrorCode.MESSAGE_TOO_LARGE:
                self._settle(shard, [Reply(ticket, told) for ticket, _ in outcome.replies], ())
            else:
                self._fail(shard, told)
            raise told from None
        except Exception as error:
            self._fail(shard, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)))
            raise
        shard.end = appended.last_offset + 1
        self._failures.pop(shard.partition.index, None)
        if shard.dropped:  # the disk failed while it took the batch: nobody would ever answer
            raise KafkaError(ErrorCode.NOT_COORDINATOR)

    def _encode(self, shard: Shard[M], outcome: Outcome, now_ms: int) -> bytearray:
        """One batch. It is packed only if it would be too large otherwise, as that of a very large group is."""
        fields = [(*self._form.encode(record), (), now_ms) for record in outcome.records]
        producer = outcome.producer or Producer(-1, -1)
        for codec in (NONE, ZSTD):
            data = batch.encode(
                fields,
                codec=codec,
                producer_id=producer.id,
                producer_epoch=producer.epoch,
                transactional=outcome.producer is not None,
            )
            if len(data) <= shard.partition.config.max_message_bytes:
                break
        return data

    # Replies

    def _settle(
        self, shard: Shard[M], replies: Sequence[Reply], errands: Sequence[Any], own_ticket: Ticket = NOBODY
    ) -> Any:
        """Hand out the replies; the one to `own_ticket` is handed back."""
        own: Any = LATER
        for ticket, response in replies:
            if ticket == own_ticket:
                own = response
                continue
            future = shard.waiting.pop(ticket, None)
            if future is not None and not future.done():
                future.set_result(response)
        for errand in errands:
            self._start(shard, self._run_errand(shard, errand))
        return own

    async def _run_errand(self, shard: Shard[M], errand: Any) -> None:
        assert self.perform is not None, "a machine has errands and nobody to do them"
        decide = await self.perform(errand, shard.epoch)
        if decide is not None and not shard.dropped:
            self._turn_alone(shard, decide)

    def _watermark_moved(self, shard: Shard[M]) -> None:
        partition = shard.partition
        if not partition.is_leader or partition.leader_epoch != shard.epoch:
            self._drop(shard, KafkaError(ErrorCode.NOT_COORDINATOR))
        elif partition.log.failed:
            self._fail(shard, KafkaError(ErrorCode.NOT_COORDINATOR, "the coordinator's disk failed"))
        while shard.unsettled and shard.unsettled[0].offset <= partition.high_watermark.value:
            settled = shard.unsettled.popleft()
            if shard.impatient and shard.impatient[0] is settled:
                shard.impatient.popleft()
            self._settle(shard, settled.replies, settled.errands)

    def _give_up(self, shard: Shard[M], now_ms: int) -> None:
        """What was not committed in time may be committed later, or not at all: who asked has to ask again."""
        late = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the coordinator's log was not committed in time")
        while shard.impatient and shard.impatient[0].deadline_ms <= now_ms:
            unsettled = shard.impatient.popleft()
            self._settle(shard, [Reply(ticket, late) for ticket, _ in unsettled.replies], ())
            unsettled.replies = ()

    # Timers

    def _set_timer(self, shard: Shard[M]) -> None:
        """A timer that is due too early only looks again: heartbeats put off a machine's time with every turn."""
        if shard.dropped:
            return
        due_ms = shard.machine.wake_at
        if shard.impatient and (due_ms is None or shard.impatient[0].deadline_ms < due_ms):
            due_ms = shard.impatient[0].deadline_ms
        if due_ms is None:
            return
        timer, due_s = shard.timer, due_ms / 1000
        if timer is not None:
            if timer.when() <= due_s:
                return
            timer.cancel()
        loop = asyncio.get_running_loop()
        shard.timer = loop.call_at(min(due_s, loop.time() + TIMER_MAX_S), self._timer_due, shard)

    def _timer_due(self, shard: Shard[M]) -> None:
        shard.timer = None
        now_ms = _monotonic_ms()
        self._give_up(shard, now_ms)
        wake_at = shard.machine.wake_at
        if wake_at is not None and wake_at <= now_ms:
            self._turn_alone(shard, lambda machine, turn: machine.wake(turn))
        else:
            self._set_timer(shard)

    # Ends

    def _start(self, shard: Shard[M], work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        shard.tasks[task] = None
        task.add_done_callback(lambda task: self._ended(shard, task))

    def _ended(self, shard: Shard[M], task: asyncio.Task[None]) -> None:
        shard.tasks.pop(task, None)
        if not task.cancelled() and task.exception() is not None:
            logger.error("%s: work of the coordinator failed", shard.partition, exc_info=task.exception())

    def _fail(self, shard: Shard[M], error: KafkaError) -> None:
        """The machine's state is no longer that of the log: begin again from the log."""
        if not shard.dropped:
            self._drop(shard, error)
            if not self._stopped:
                self._begin_later(shard.partition.index)

    def _drop(self, shard: Shard[M], error: KafkaError) -> None:
        if shard.dropped:
            return
        shard.dropped = True
        shard.loaded = False
        if self._shards.get(shard.partition.index) is shard:
            del self._shards[shard.partition.index]
        if shard.watcher is not None:
            shard.partition.high_watermark.unwatch(shard.watcher)
        if shard.timer is not None:
            shard.timer.cancel()
        for task in list(shard.tasks):
            if task is not asyncio.current_task():
                task.cancel()
        shard.unsettled.clear()
        shard.impatient.clear()
        waiting, shard.waiting = shard.waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_result(error)


def _monotonic_ms() -> int:
    """Rounded, or a timer that is due at 5.123 s could find that it is 5122 ms, and set itself again for ever."""
    return round(asyncio.get_running_loop().time() * 1000)

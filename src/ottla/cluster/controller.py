"""The controller: the one broker of the cluster that fences brokers, restores leaders and ends reassignments.

Every broker campaigns when there is no controller. The elected one fences brokers whose sessions have ended, gives
leadership back to preferred leaders, ends reassignments whose new replicas are in sync, elects unclean leaders where a
topic allows them, and has all brokers compare their metadata. All of it is decided on the image and appended under the
controller's node: a controller that was replaced, or whose session has expired, changes nothing. Requests of clients do
not need the controller.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Protocol

from ottla.cluster.agreement import verify_agreement
from ottla.cluster.changes import (
    NO_LEADER,
    Change,
    ChangePartition,
    FenceBroker,
    RegisterBroker,
    SetConfig,
    TakeReplicasOffline,
    UnfenceBroker,
    UnregisterBroker,
)
from ottla.cluster.decision import Decision
from ottla.cluster.elections import ElectionType, elect_leaders, restore_preferred_leaders
from ottla.cluster.image import Image
from ottla.cluster.leadership import UNCLEAN_ELECTION, read_common_rules, read_topic_rules
from ottla.cluster.membership import Membership
from ottla.cluster.metadata import Metadata
from ottla.cluster.metadata_log import LogUnavailable
from ottla.cluster.reassignments import finish_reassignments
from ottla.cluster.registration import become_controller, require_current
from ottla.errors import ErrorCode, KafkaError
from ottla.topic_partition import TopicPartition

POLL_S = 1.0
"""How often the members are looked at without a sign of change."""

PAUSE_S = 0.05
"""Least time between two rounds of work. Changes that arrive meanwhile are handled together."""

CHANGE_TIMEOUT_S = 10.0
AT_ONCE = 2000
"""Partitions per entry. Work on more of them goes on in the next entry."""

FAILURES_MAX = 5
"""After so many rounds in a row that failed, another broker should try."""

COOLING_S = 30.0
"""A broker that resigned because its rounds failed leaves the next elections to others for this time."""

_ELECTING = (RegisterBroker, FenceBroker, UnfenceBroker, TakeReplicasOffline, UnregisterBroker)
"""Changes of brokers by which replay may elect a leader. An unclean election can make the ISR that a reassignment waits
for: no leader proposes it then."""

logger = logging.getLogger(__name__)


class ControllerSettings(Protocol):
    """The broker settings that the controller goes by."""

    @property
    def auto_leader_rebalance_enable(self) -> bool: ...

    @property
    def leader_imbalance_check_interval_seconds(self) -> int: ...


class Controller:
    def __init__(
        self,
        metadata: Metadata,
        membership: Membership,
        settings: Callable[[], ControllerSettings],
        random: Random,
    ) -> None:
        self._metadata = metadata
        self._membership = membership
        self._settings = settings
        self._random = random
        self._wake = asyncio.Event()
        self._is_stopped = False
        self._is_watching = False
        self._looked_at_s = float("-inf")
        self._rebalanced_at_s = float("-inf")
        self._verified_version = -1
        self._must_look = True
        self._must_finish = self._must_elect = True
        self._served_epoch: int | None = None
        self._failures = 0
        self._cooling_until_s = float("-inf")
        metadata.on_change(self._handle_image_change)

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        controller = self._metadata.image.controller
        return controller is not None and controller.epoch == self._membership.log.controller_epoch

    async def run(self) -> None:
        """Campaign and work until `stop`, then resign."""
        loop = asyncio.get_running_loop()
        while not self._is_stopped:
            try:
                await self._work(loop.time())
                self._failures = 0
            except LogUnavailable:
                self._must_look = True  # there is nobody to resign to
            except Exception as error:
                await self._handle_failure(error, loop.time())
            await asyncio.sleep(PAUSE_S * (0.5 + self._random.random()))
            if not self._is_stopped:
                await _wait(self._wake, POLL_S)
                self._wake.clear()
        await self._resign()

    def stop(self) -> None:
        """Have `run` resign and return."""
        self._is_stopped = True
        self._wake.set()

    def _handle_image_change(self, before: Image, after: Image, changes: Sequence[Change]) -> None:
        if before.controller != after.controller:
            self._must_look = True
            self._wake.set()
        if self.is_active:
            elect = any(isinstance(item, SetConfig) and item.key == UNCLEAN_ELECTION for item in changes)
            if elect or any(isinstance(item, _ELECTING) or _is_reassigned(after, item) for item in changes):
                self._must_finish = True
                self._must_elect |= elect
                self._wake.set()

    async def _work(self, now_s: float) -> None:
        if now_s - self._looked_at_s >= POLL_S:
            self._must_look = True
        if self._must_look:
            self._must_look = False
            self._looked_at_s = now_s
            await self._watch()
            if self.is_active:
                await self._fence_dead()
            elif now_s >= self._cooling_until_s:
                await self._campaign()
        if not self.is_active:
            return
        if self._served_epoch != self._membership.log.controller_epoch:
            self._served_epoch = self._membership.log.controller_epoch
            self._must_finish = self._must_elect = True
            self._rebalanced_at_s = now_s
        if self._must_finish:
            self._must_finish = False
            await self._repeat(finish_reassignments)
        if self._must_elect:
            self._must_elect = False
            await self._repeat(elect_unclean_leaders)
        settings = self._settings()
        if now_s - self._rebalanced_at_s >= settings.leader_imbalance_check_interval_seconds:
            self._rebalanced_at_s = now_s
            self._must_elect = True
            if settings.auto_leader_rebalance_enable:
                await self._repeat(restore_preferred_leaders)
            if self._verified_version != self._metadata.image.version:
                await self._change(verify_agreement)
                self._verified_version = self._metadata.image.version

    async def _watch(self) -> None:
        """Have the store report at once when a broker joins or leaves."""
        if not self._is_watching:
            self._is_watching = True
            try:
                await self._membership.watch_alive(self._handle_member_change)
            except BaseException:
                self._is_watching = False
                raise

    def _handle_member_change(self) -> None:
        self._is_watching = False
        self._must_look = True
        self._wake.set()

    async def _fence_dead(self) -> None:
        """Fence every broker whose alive node is gone."""
        # The image comes first: a broker that registers after the nodes were listed must not be taken for dead.
        serving = {broker.id: broker.epoch for broker in self._metadata.image.all_brokers() if not broker.fenced}
        alive = await self._membership.list_alive()
        dead = {broker_id: epoch for broker_id, epoch in serving.items() if alive.get(broker_id) != epoch}
        if dead:
            logger.warning("the sessions of brokers %s have ended: they are fenced", sorted(dead))
            await self._change(lambda image: fence_brokers(image, dead))

    async def _campaign(self) -> None:
        """Become the controller if there is none."""
        broker_id, epoch = self._membership.broker_id, self._membership.broker_epoch
        seen = self._metadata.image.controller
        if seen is not None and seen.epoch in await self._membership.list_controllers():
            return
        seen_epoch = None if seen is None else seen.epoch

        def decide(image: Image) -> Decision[int | None]:
            broker = require_current(image, broker_id, epoch)
            elected = None if image.controller is None else image.controller.epoch
            if not broker.serves or elected not in (None, seen_epoch):
                return Decision([], None)
            return become_controller(image, broker_id, epoch)

        if not self._metadata.image.serves(broker_id):
            return
        try:
            elected = await self._metadata.change(decide, CHANGE_TIMEOUT_S)
        except KafkaError as error:
            if error.code not in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED):
                raise
            return
        if elected is not None:
            logger.info("broker %d is the controller, with epoch %d", broker_id, elected)
            self._must_look = True
            self._wake.set()

    async def _repeat(self, decide: Callable[[Image, int], Decision[int]]) -> None:
        """Run a decider until there is nothing left for it to do."""
        while self.is_active and await self._change(lambda image: decide(image, AT_ONCE)) == AT_ONCE:
            pass

    async def _change(self, decide: Callable[[Image], Decision[int]]) -> int:
        """Make a change as the controller. Returns 0 if this broker is not the controller in the image that is used."""
        epoch = self._membership.log.controller_epoch

        def decide_as_controller(image: Image) -> Decision[int]:
            if image.controller is None or image.controller.epoch != epoch:
                raise KafkaError(ErrorCode.NOT_CONTROLLER, "another controller was elected")
            return decide(image)

        try:
            return await self._metadata.change(decide_as_controller, CHANGE_TIMEOUT_S, as_controller=True)
        except KafkaError as error:
            if error.code is not ErrorCode.NOT_CONTROLLER:
                raise
            logger.info("broker %d is no longer the controller", self._membership.broker_id)
            return 0

    async def _handle_failure(self, error: Exception, now_s: float) -> None:
        self._must_look = self._must_finish = self._must_elect = True
        is_known = isinstance(error, KafkaError)
        logger.warning("the controller's work failed: %s", error if is_known else repr(error), exc_info=not is_known)
        self._failures += 1
        if self._failures >= FAILURES_MAX and self.is_active:
            logger.error("the controller's work keeps failing on broker %d: it resigns", self._membership.broker_id)
            self._failures = 0
            self._cooling_until_s = now_s + COOLING_S
            await self._resign()

    async def _resign(self) -> None:
        try:
            await self._membership.log.resign_controllership()
        except LogUnavailable as error:
            logger.info("the controller could not resign: %s", error)


def _is_reassigned(image: Image, change: Change) -> bool:
    """Whether this is a change of a partition that is being reassigned."""
    if not isinstance(change, ChangePartition):
        return False
    topic = image.topic_by_id(change.topic_id)
    state = None if topic is None else topic.partitions[change.partition]
    return state is not None and bool(state.adding or state.removing)


def fence_brokers(image: Image, dead: dict[int, int]) -> Decision[int]:
    """Fence those of the brokers that are still at these epochs. Returns how many."""
    changes = [
        FenceBroker(broker.id, broker.epoch)
        for broker in image.all_brokers()
        if not broker.fenced and dead.get(broker.id) == broker.epoch
    ]
    return Decision(changes, len(changes))


def elect_unclean_leaders(image: Image, limit: int) -> Decision[int]:
    """Elect a leader for partitions without one, where the topic allows it to lack acknowledged records."""
    common = read_common_rules(image.configs, image.brokers)
    partitions: list[TopicPartition] = []
    for topic in image.topics():
        if read_topic_rules(image.configs, topic.name, common).unclean_election:
            partitions += [
                TopicPartition(topic.name, index)
                for index, state in enumerate(topic.partitions)
                if state.leader == NO_LEADER
                and any(image.serves(member) and member not in state.offline for member in state.replicas)
            ]
    decision = elect_leaders(image, ElectionType.UNCLEAN, partitions[:limit])
    return Decision(decision.changes, len(decision.changes))


async def _wait(event: asyncio.Event, timeout_s: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()

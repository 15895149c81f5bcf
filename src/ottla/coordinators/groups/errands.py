"""Runs the errands of groups: a search among many topics, and the first turn after a downgrade."""

from collections.abc import Callable

from ottla.coordinators.consumer.topic_searches import TopicSearch
from ottla.coordinators.groups.downgrade import Downgrade
from ottla.coordinators.groups.machine import GroupMachine
from ottla.coordinators.machine import Outcome, Turn
from ottla.system.threads import Offload


class GroupErrands:
    def __init__(self, offload: Offload) -> None:
        self._offload = offload

    async def perform(
        self, errand: TopicSearch | Downgrade, coordinator_epoch: int
    ) -> Callable[[GroupMachine, Turn], Outcome] | None:
        """Run an errand. Returns the turn that brings its result to the group."""
        if isinstance(errand, Downgrade):
            return lambda groups, turn: groups.begin_classic_group(errand, turn)
        found = await self._offload(errand.run)
        return lambda groups, turn: groups.store_found_topics(errand.group_id, found, turn)

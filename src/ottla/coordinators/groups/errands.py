"""What groups have done outside of their turns: a search among many topics, and the first turn after a conversion."""

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
        """What comes back is the group's next turn."""
        if isinstance(errand, Downgrade):
            return lambda groups, turn: groups.begin_classic_group(errand, turn)
        found = await self._offload(errand.run)
        return lambda groups, turn: groups.store_found_topics(errand.group_id, found, turn)

"""A client that changes the metadata of a cluster under faults: one setting after the other, at every broker.

Brokers write to the metadata log at moments that they choose, and seldom while they are out of the cluster. A request
comes at any moment: also when the session of its broker has just ended, and the broker has not registered again yet.
"""

import asyncio
from random import Random

from ottla.cluster.changes import ConfigResource
from ottla.errors import ErrorCode
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.simulation.channel import Channel
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.world import Machine

HOST = "administrator"
SETTING, VALUE = "consumer.session.timeout.ms", "50000"
VERSION = 1


class Administrator:
    """Gives a setting to one new group after the other, until `stopped` is set."""

    def __init__(self, cluster: SimulatedCluster, random: Random) -> None:
        self.stopped = False
        self._cluster = cluster
        self._random = random
        self._interval_s = random.choice((0.05, 0.3, 1.0))
        self._acknowledged: list[str] = []
        self._sent = 0

    async def run(self, machine: Machine) -> None:
        """Send requests to one broker, one after the other."""
        while not self.stopped:
            try:
                channel = await Channel.open(HOST, machine)
            except OSError:
                await self._pause()
                continue
            while not self.stopped and not channel.lost:
                await self._set_next(channel)
                await self._pause()
            channel.close()

    async def _set_next(self, channel: Channel) -> None:
        group = f"group-{self._sent}"
        self._sent += 1
        resource = AlterConfigsResource(
            resource_type=ConfigResource.GROUP,
            resource_name=group,
            configs=[AlterableConfig(name=SETTING, config_operation=0, value=VALUE)],
        )
        answer = await channel.call(IncrementalAlterConfigsRequest(resources=[resource]), VERSION)
        if answer is not None and answer.responses[0].error_code == ErrorCode.NONE:
            self._acknowledged.append(group)

    async def _pause(self) -> None:
        await asyncio.sleep(self._random.expovariate(1 / self._interval_s))

    def find_problems(self) -> list[str]:
        """Settings that were acknowledged and that some broker does not know. All brokers are up."""
        problems = []
        for machine in self._cluster.up:
            assert machine.process is not None
            image = machine.process.broker.node.metadata.image
            lost = [
                each for each in self._acknowledged if image.config(ConfigResource.GROUP, each).get(SETTING) != VALUE
            ]
            if lost:
                problems.append(f"LOST settings of {lost[:3]}, as {machine.name} knows at {image.version}")
        return problems

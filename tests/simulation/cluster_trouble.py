"""The faults of a cluster in a simulation, chosen by a seed: of brokers, of the links between them, and of the store.

Trouble has a budget. Only one machine at a time is lossy: it has lost what was not synced in a power cut, and is not in
sync again yet. And no machine is lossy that is alone in the ISR of a partition: such a partition would be offline until
a person chooses a leader. With min.insync.replicas=2 nothing that was acknowledged may be lost within that budget.
"""

import asyncio
import errno
from collections.abc import Callable
from itertools import permutations
from random import Random

from tests.simulation.cluster import SESSION_TIMEOUT_S, SimulatedCluster
from tests.simulation.disk import SHORTAGES
from tests.simulation.history import Ending
from tests.simulation.world import Machine

NEEDING_ROOM = [operation for operation, number in SHORTAGES.items() if number == errno.ENOSPC]


class ClusterTrouble:
    def __init__(self, cluster: SimulatedCluster, clients: list[str], random: Random) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._random = random
        self._interval_s = random.choice((0.3, 1.0, 4.0))
        self.clients = clients
        self.stopped = False
        self._lossy: Machine | None = None
        actions: list[Callable[[], None]] = [
            self._kill,
            self._cut_power,
            self._pause,
            self._cut,
            self._partition,
            self._cut_client,
            self._reset,
            self._leave_store,
            self._disconnect_store,
            self._lag_store,
            self._stop_store,
            self._fill_disk,
        ]
        # Every seed has its own mixture of faults.
        self._actions = random.choices(actions, k=random.randint(2, 8))
        self._stops = random.random() < 0.5

    async def strike(self) -> None:
        """Cause a fault now and then."""
        while not self.stopped:
            await asyncio.sleep(self._random.expovariate(1 / self._interval_s))
            await self._strike_once()

    async def _strike_once(self) -> None:
        if not self.stopped:
            if self._stops and self._cluster.up and self._random.random() < 0.1:
                machine = self._random.choice(self._cluster.up)
                if not self._is_paused(machine):
                    await machine.stop()
            else:
                self._random.choice(self._actions)()

    async def revive(self, machine: Machine) -> None:
        """Start the machine whenever it is down."""
        while True:
            await machine.down.wait()
            await asyncio.sleep(self._random.expovariate(self._random.choice((0.2, 4))))
            if machine.process is None:
                await machine.start()

    def stop(self) -> None:
        """No more faults, and everything that was cut or paused goes on."""
        self.stopped = True
        self._note("is over")
        self._cluster.is_in_trouble = False
        self._world.network.heal_all()
        self._cluster.store.start()
        for machine in self._cluster.machines:
            self._cluster.store.heal(machine.name)
            self._cluster.store.catch_up(machine.name)
            self._resume(machine)
            machine.disk.heal()

    def _note(self, event: str) -> None:
        self._world.note("trouble", event)

    def _duration(self) -> float:
        """Short, or about a session, or much longer."""
        return self._random.expovariate(1 / self._random.choice((0.1, SESSION_TIMEOUT_S / 2, 3 * SESSION_TIMEOUT_S)))

    def _later(self, undo: Callable[..., None], *args: object) -> None:
        self._world.loop.call_later(self._duration(), undo, *args)

    def _choose(self) -> Machine | None:
        running = [machine for machine in self._cluster.machines if machine.process is not None]
        return self._random.choice(running) if running else None

    def _kill(self) -> None:
        if (machine := self._choose()) is not None:
            machine.crash(Ending.KILL)

    def _cut_power(self) -> None:
        machine = self._choose()
        if machine is None or (self._lossy is not None and self._lossy is not machine and not self._has_recovered()):
            return
        if self._is_alone_in_sync(machine):
            return
        self._lossy = machine
        machine.crash(Ending.POWER_CUT, silent=self._random.random() < 0.5)

    def _has_recovered(self) -> bool:
        """Whether the machine that lost data last is in sync again everywhere, as every broker that is up knows."""
        lossy = self._lossy
        assert lossy is not None
        if not lossy.up.is_set():
            return False
        broker_id = self._cluster.machines.index(lossy) + 1
        for machine in self._cluster.up:
            process = machine.process
            assert process is not None
            for topic in process.broker.node.metadata.image.topics():
                if any(broker_id in state.replicas and broker_id not in state.isr for state in topic.partitions):
                    return False
        return True

    def _is_alone_in_sync(self, machine: Machine) -> bool:
        """Whether some partition has nobody else in its ISR, by the newest metadata that a broker knows."""
        processes = [each.process for each in self._cluster.machines if each.process is not None and each.up.is_set()]
        images = [process.broker.node.metadata.image for process in processes]
        if not images:
            return True
        newest = max(images, key=lambda image: image.version)
        broker_id = self._cluster.machines.index(machine) + 1
        return any(not set(state.isr) - {broker_id} for topic in newest.topics() for state in topic.partitions)

    def _is_paused(self, machine: Machine) -> bool:
        return machine.process is not None and machine.process.owner.is_paused

    def _pause(self) -> None:
        machine = self._choose()
        if machine is not None and machine.process is not None and machine.up.is_set():
            self._note(f"{machine.name} is paused")
            machine.process.owner.pause()
            self._later(self._resume, machine)

    def _resume(self, machine: Machine) -> None:
        if machine.process is not None and machine.process.owner.is_paused:
            self._note(f"{machine.name} goes on")
            machine.process.owner.resume()

    def _cut(self) -> None:
        names = [machine.name for machine in self._cluster.machines]
        source, target = self._random.choice(list(permutations(names, 2)))
        self._note(f"{source} does not reach {target}")
        self._world.network.cut(source, target)
        self._later(self._world.network.heal, source, target)

    def _partition(self) -> None:
        """One broker is cut off from both others, and perhaps from the store."""
        machine = self._random.choice(self._cluster.machines)
        self._note(f"{machine.name} is cut off")
        for other in self._cluster.machines:
            if other is not machine:
                self._world.network.partition(machine.name, other.name)
                self._later(self._world.network.heal, machine.name, other.name)
        if self._random.random() < 0.5:
            self._cut_store(machine)

    def _cut_client(self) -> None:
        client, machine = self._random.choice(self.clients), self._random.choice(self._cluster.machines)
        self._world.network.partition(client, machine.name)
        self._later(self._world.network.heal, client, machine.name)

    def _reset(self) -> None:
        host = self._random.choice([machine.name for machine in self._cluster.machines] + self.clients)
        self._note(f"connections of {host} are reset")
        self._world.network.reset_connections(host)

    def _leave_store(self) -> None:
        self._cut_store(self._random.choice(self._cluster.machines))

    def _cut_store(self, machine: Machine) -> None:
        self._note(f"{machine.name} does not reach the store")
        self._cluster.store.cut(machine.name)
        self._later(self._cluster.store.heal, machine.name)

    def _disconnect_store(self) -> None:
        self._cluster.store.disconnect(self._random.choice(self._cluster.machines).name)

    def _lag_store(self) -> None:
        machine = self._random.choice(self._cluster.machines)
        self._cluster.store.lag(machine.name)
        self._later(self._cluster.store.catch_up, machine.name)

    def _stop_store(self) -> None:
        self._note("the store is away")
        self._cluster.store.stop()
        self._later(self._cluster.store.start)

    def _fill_disk(self) -> None:
        machine = self._random.choice(self._cluster.machines)
        self._note(f"the disk of {machine.name} is full")
        for operation in NEEDING_ROOM:
            machine.disk.fail(operation, errno.ENOSPC, times=None)
        self._later(self._free_disk, machine)

    def _free_disk(self, machine: Machine) -> None:
        self._note(f"the disk of {machine.name} has room")
        machine.disk.heal()

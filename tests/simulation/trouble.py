"""The faults of a simulation, chosen by a seed, and the task that starts machines again."""

import asyncio
import errno
from collections.abc import Callable
from random import Random

from tests.simulation.history import Ending
from tests.simulation.world import Machine

CLOCK_SHIFT_MS_MAX = 20 * 60_000
"""How far a clock is moved at most. A record an hour ahead of the broker's clock would be refused for good."""
CRASHES = (Ending.KILL, Ending.POWER_CUT)


class Trouble:
    """Causes faults for one machine and the clients that talk to it, until it is stopped."""

    def __init__(self, machine: Machine, clients: list[str], random: Random) -> None:
        self._machine = machine
        self._world = machine.world
        self.clients = clients
        self._random = random
        self._interval_s = random.choice((0.1, 0.4, 1.5))
        self.stopped = False
        actions: list[Callable[[], None]] = [
            self._reset,
            self._partition,
            self._crash,
            self._crash_in_operation,
            self._fill_disk,
            self._break_disk,
            self._move_clock,
        ]
        # Every seed has its own mixture of faults: some have no power cut, some have little else.
        self._actions = random.choices(actions, k=random.randint(2, 8))
        self._endings = random.choice(((Ending.KILL,), CRASHES, CRASHES, (Ending.POWER_CUT,)))
        self._stops = random.random() < 0.5

    async def strike(self) -> None:
        """Cause a fault now and then."""
        while not self.stopped:
            await asyncio.sleep(self._random.expovariate(1 / self._interval_s))
            if self.stopped or self._machine.process is None:
                continue
            if self._stops and self._machine.up.is_set() and self._random.random() < 0.1:
                await self._machine.stop()
            else:
                self._random.choice(self._actions)()

    async def revive(self) -> None:
        """Start the machine whenever it is down."""
        machine = self._machine
        while True:
            await machine.down.wait()
            await asyncio.sleep(self._random.expovariate(4))
            machine.ending_next = self._random.choice(self._endings)
            if machine.process is None:
                await machine.start()

    def stop(self) -> None:
        self.stopped = True
        self._machine.disk.heal()
        self._world.network.heal_all()

    def _note(self, event: str) -> None:
        self._world.note("trouble", event)

    def _reset(self) -> None:
        host = self._random.choice([self._machine.name, *self.clients])
        self._note(f"connections of {host} are reset")
        self._world.network.reset_connections(host)

    def _partition(self) -> None:
        client = self._random.choice(self.clients)
        self._note(f"{client} is cut off")
        self._world.network.partition(client, self._machine.name)
        seconds = self._random.expovariate(1 / self._random.choice((0.1, 2.0, 20.0)))
        self._world.loop.call_later(seconds, self._world.network.heal, client, self._machine.name)

    def _crash(self) -> None:
        ending = self._random.choice(self._endings)
        self._machine.crash(ending, silent=ending is Ending.POWER_CUT and self._random.random() < 0.5)

    def _crash_in_operation(self) -> None:
        ahead = self._random.choice((3, 30, 300))
        self._machine.disk.crash_at(self._machine.disk.operations + self._random.randint(1, ahead))

    def _fill_disk(self) -> None:
        operation = self._random.choice(("append", "append", "create", "write_at"))
        times = self._random.randint(1, 5)
        self._note(f"no space for {operation}, {times} times")
        self._machine.disk.fail(operation, errno.ENOSPC, times=times)

    def _break_disk(self) -> None:
        operation = self._random.choice(("append", "fsync", "fsync", "read_at"))
        self._note(f"the next {operation} fails")
        self._machine.disk.fail(operation, errno.EIO)

    def _move_clock(self) -> None:
        self._machine.clock.shift_ms = self._random.randint(-CLOCK_SHIFT_MS_MAX, CLOCK_SHIFT_MS_MAX)
        self._note(f"the clock is {self._machine.clock.shift_ms} ms off")

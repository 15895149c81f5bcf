"""The end of a simulation: no more faults, all clients finish, and the broker starts for the last time."""

import asyncio
from random import Random
from typing import Any

from tests.simulation.history import Ending
from tests.simulation.trouble import Trouble
from tests.simulation.world import Machine

PATIENCE_S = 120.0
"""Virtual seconds that all tasks have to finish after the last fault."""


def end_trouble(machine: Machine, trouble: Trouble) -> None:
    """End all faults, and restart the broker: only that brings back partitions which a failed disk took offline."""
    if not trouble.stopped:
        trouble.stop()
        machine.world.note("trouble", "is over")
        machine.crash(Ending.KILL)


async def finish(tasks: list[asyncio.Task[Any]]) -> None:
    """Wait for all tasks. AssertionError if one does not finish in time; an exception of a task is raised."""
    if tasks:
        _, stuck = await asyncio.wait(tasks, timeout=PATIENCE_S)
        assert not stuck, ", ".join(sorted(task.get_name() for task in stuck)) + " cannot finish"
        for task in tasks:
            task.result()


async def last_restart(machine: Machine, random: Random) -> None:
    """Restart the broker once more, or not, as `random` decides. No fault follows."""
    how = random.choice((None, Ending.POWER_CUT, *Ending))
    if machine.process is not None and how is Ending.SHUTDOWN:
        await machine.stop()
    elif how is not None:
        machine.crash(how)
    if machine.process is None:
        assert await machine.start(), "the last start failed"

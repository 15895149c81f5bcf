"""How a simulation ends: the trouble is over, everybody comes to an end, and the broker starts for the last time."""

import asyncio
from random import Random
from typing import Any

from tests.simulation.history import Ending
from tests.simulation.trouble import Trouble
from tests.simulation.world import Machine

PATIENCE_S = 120.0
"""Virtual seconds after the trouble is over in which everybody must be done."""


def end_trouble(machine: Machine, trouble: Trouble) -> None:
    """From here on everybody has to come to an end. A log that a broken disk has taken offline comes back with a
    restart only."""
    if not trouble.stopped:
        trouble.stop()
        machine.world.note("trouble", "is over")
        machine.crash(Ending.KILL)


async def finish(tasks: list[asyncio.Task[Any]]) -> None:
    """Everybody must come to an end, and not by an exception."""
    if tasks:
        _, stuck = await asyncio.wait(tasks, timeout=PATIENCE_S)
        assert not stuck, ", ".join(sorted(task.get_name() for task in stuck)) + " cannot finish"
        for task in tasks:
            task.result()


async def last_restart(machine: Machine, random: Random) -> None:
    """One more, or none, after which nothing happens to the broker."""
    how = random.choice((None, Ending.POWER_CUT, *Ending))
    if machine.process is not None and how is Ending.SHUTDOWN:
        await machine.stop()
    elif how is not None:
        machine.crash(how)
    if machine.process is None:
        assert await machine.start(), "the last start failed"

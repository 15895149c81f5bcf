"""A world from a seed: machines with disks, clocks and brokers, a network between them, and a trace of it all.

    async def main() -> None:
        world = World(seed=7)
        machine = world.add_machine("broker-1", {"node.id": "1"})
        await machine.start()
        machine.crash(Ending.POWER_CUT)
        await machine.start()

    simulate(main())

Each concern has a `Random` of its own, so a draw more in one changes nothing in the others.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from random import Random
from threading import get_ident
from typing import Any

from ottla.cluster.memory_store import MemoryStore
from ottla.cluster.store import StoreUnavailable
from ottla.config import BrokerConfig
from ottla.errors import KafkaError
from ottla.storage.directories import FAILED_FSYNC, DirectoryError
from tests.simulation.disk import CHANGES, Crashed, SimulatedDisk
from tests.simulation.history import Ended, Ending, Event
from tests.simulation.network import SimulatedNetwork
from tests.simulation.process import MachineClock, Process
from tests.simulation.trace import Trace

PORT = 9092


class MachineDisk(SimulatedDisk):
    """A disk that tells what is done to it, and when the process died in an operation."""

    def __init__(self, random: Random, note: Callable[[str], None], died: Callable[[], None]) -> None:
        super().__init__(random)
        self.fsync_failed = False
        self._note = note
        self._died = died

    def step(self, operation: str, path: str) -> None:
        if operation in CHANGES:
            self._note(f"{operation} {path}")
        try:
            super().step(operation, path)
        except Crashed:
            self._died()
            raise
        except OSError:
            self.fsync_failed |= operation == "fsync"
            raise


class Machine:
    """A host with a disk and a clock, and at most one broker at a time."""

    def __init__(
        self, world: "World", name: str, settings: Mapping[str, str], store: MemoryStore | None = None
    ) -> None:
        self.name = name
        self._store = store
        self.world = world
        self.clock = MachineClock(world.loop)
        self.disk = MachineDisk(world.random(f"disk of {name}"), self._note, self._died_in_operation)
        self.process: Process | None = None
        self.life = 0
        self.ending_next = Ending.KILL
        """How the machine ends if the process dies in a disk operation (`disk.crash_at`)."""
        self.down = asyncio.Event()
        """Set while no broker runs here."""
        self.down.set()
        self.up = asyncio.Event()
        """Set while a broker accepts connections here."""
        self.stopping: asyncio.Task[bool] | None = None
        self._config = BrokerConfig.of({"listeners": f"PLAINTEXT://{name}:{PORT}", **settings})

    def _note(self, event: str) -> None:
        self.world.note(self.name, event)

    async def start(self) -> bool:
        """Whether a broker runs now. It may die while starting, or give up because of a fault of its disk."""
        assert self.process is None, f"{self.name} is up"
        self.life += 1
        life = self.life
        process = self.process = Process(
            self.name,
            life,
            self._config,
            self.disk,
            self.clock,
            self.world.network,
            lambda concern: self.world.random(f"{concern} of {self.name} in life {life}"),
            None if self._store is None else self._store.client(self.name),
        )
        self.down.clear()
        self._note(f"life {life} begins")
        error = await process.start()
        if error is None:
            self._note(f"life {life} accepts connections")
            self.up.set()
            process.broker.failure.add_done_callback(lambda failure: self._gives_up(process, failure.result()))
            return True
        if process.alive:
            if not isinstance(error, OSError | KafkaError | DirectoryError | StoreUnavailable):
                self.world.surprises.append(f"{self.name} cannot start: {error!r}")
            self._note(f"cannot start: {error}")
            self.crash(Ending.KILL)
        return False

    def _gives_up(self, process: Process, reason: str) -> None:
        """The broker cannot go on, and stops by itself, as `ottla up` would."""
        if process is self.process and self.up.is_set():
            self._note(f"gives up: {reason}")
            self.up.clear()
            self.stopping = self.world.loop.create_task(self.stop(), name=f"{self.name} gives up")

    async def stop(self) -> bool:
        """Shut down cleanly; whether it was clean."""
        process = self.process
        assert process is not None, f"{self.name} is down"
        self._note("stops")
        self.up.clear()  # or a broker that gives up now would be stopped twice
        error = await process.stop()
        if not process.alive:
            return False
        if error is not None and not isinstance(error, OSError | KafkaError):
            self.world.surprises.append(f"{self.name} cannot stop: {error!r}")
        clean = error is None and self.disk.exists("/data/.kafka_cleanshutdown")
        self.crash(Ending.SHUTDOWN if clean else Ending.KILL)
        return clean

    def crash(self, ending: Ending, *, silent: bool = False) -> None:
        """The process, or with a power cut the whole machine, is gone at this instant."""
        if self.process is not None:
            self._settle(self._end(ending, silent=silent))

    def _died_in_operation(self) -> None:
        """The disk lets nobody in any more; what it kept is decided when the operation has left its torn write."""
        if self.process is not None:
            ending = self._end(self.ending_next, silent=False)
            self.world.loop.call_soon(self._settle, ending)

    def _end(self, ending: Ending, *, silent: bool) -> Ending:
        """How it ended indeed."""
        if self.disk.fsync_failed and (self.world.reboots_after_failed_fsync or not self._knows_of_failed_fsync()):
            ending = Ending.POWER_CUT
        self.disk.fsync_failed = False
        process, self.process = self.process, None
        self.up.clear()
        assert process is not None
        self._note(f"life {process.life} ends: {ending.value}")
        self.world.record(self.name, Ended(process.life, ending))
        process.die(silent=silent)
        return ending

    def _knows_of_failed_fsync(self) -> bool:
        """A broker that could not leave the mark for the next one asks for a reboot, and dead ones ask for nothing."""
        return self.disk.node(f"/data/{FAILED_FSYNC}") is not None

    def _settle(self, ending: Ending) -> None:
        self.disk.crash(lose_unsynced=ending is Ending.POWER_CUT)
        self.down.set()


class World:
    """Made inside a running `SimulatedLoop`."""

    def __init__(self, seed: int, *, trace_lines: int | None = 2000) -> None:
        self.seed = seed
        self.loop = asyncio.get_running_loop()
        self.trace = Trace(trace_lines)
        self.network = SimulatedNetwork(self.random("network"))
        self.machines: dict[str, Machine] = {}
        self.events: list[Event] = []
        self.reboots_after_failed_fsync = True
        """Whether a failed fsync is followed by a reboot. Without one, pages that were not written can be read."""
        self.surprises: list[str] = []
        """What must never happen: exceptions that nobody expected, in callbacks or in the broker's log."""
        self.loop.set_exception_handler(self._surprise)
        self._listener = _Listener(self)

    def random(self, concern: str) -> Random:
        return Random(f"{self.seed} {concern}")

    def add_machine(self, name: str, settings: Mapping[str, str], store: MemoryStore | None = None) -> Machine:
        """With a `store`, the machine's broker is one of a cluster, and the store knows it by the machine's name."""
        machine = self.machines[name] = Machine(self, name, settings, store)
        return machine

    def note(self, host: str, event: str) -> None:
        self.trace.note(self.loop.time(), host, event)

    def record(self, host: str, event: Event) -> None:
        """For the checker."""
        self.events.append(event)
        self.note(host, repr(event))

    def close(self) -> None:
        self._listener.close()

    def _surprise(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not has_only(error, Crashed):
            self.surprises.append(f"{context.get('message')}: {error!r}")


def has_only(error: BaseException | None, *kinds: type[BaseException]) -> bool:
    """Whether the error, or each one in a group of errors, is of one of these kinds."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(kinds)[1] is None
    return isinstance(error, kinds)


class _Listener(logging.Handler):
    """Hears what brokers log, instead of the screen: an exception that is no fault of the disk is a bug.

    Real brokers may run in other threads of the process, for other tests; what they log is not part of the simulation.
    """

    def __init__(self, world: World) -> None:
        super().__init__(logging.WARNING)
        self._world = world
        self._thread = get_ident()
        self._logger = logging.getLogger("ottla")
        self._logger.addHandler(self)
        self._logger.propagate = False

    def close(self) -> None:
        self._logger.removeHandler(self)
        self._logger.propagate = True
        super().close()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread != self._thread:
            return
        self._world.note("log", record.getMessage())
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not has_only(error, OSError, KafkaError, Crashed):
            self._world.surprises.append(f"{record.getMessage()}: {error!r}")

"""One life of a broker on a simulated machine: what it is given instead of an operating system.

A dead process does nothing more, whatever callbacks of it are left in the event loop: its disk raises `Crashed`, its
threads never finish and its connections are gone. The next process on the same machine has doors of its own.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Any, TypeVar

from ottla.broker.broker import Broker
from ottla.cluster.store import Store
from ottla.config import BrokerConfig, Listener
from ottla.server import Server
from ottla.storage.files import Space
from tests.simulation.disk import Crashed, SimulatedDisk, SimulatedFile, SimulatedLock
from tests.simulation.loop import Owner
from tests.simulation.network import SimulatedNetwork

T = TypeVar("T")

START_TIMEOUT_S = 600.0
SLOW_THREAD_CHANCE = 0.02


class MachineClock:
    """Wall-clock time of one machine: that of the simulation, and wrong by a shift that a test may change."""

    EPOCH_MS = 1_700_000_000_000

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.shift_ms = 0

    def now_ms(self) -> int:
        return self.EPOCH_MS + int(self._loop.time() * 1000) + self.shift_ms


class ProcessDisk:
    """The machine's disk as long as the process lives."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self._shared = disk
        self._lifetime = disk.lifetime
        self.closed = False

    @property
    def _disk(self) -> SimulatedDisk:
        if self.closed or self._shared.lifetime != self._lifetime:
            raise Crashed("the process is gone")
        return self._shared

    def open(self, path: str, *, create: bool = False) -> SimulatedFile:
        return self._disk.open(path, create=create)

    def open_read(self, path: str) -> SimulatedFile:
        return self._disk.open_read(path)

    def read(self, path: str) -> bytes:
        return self._disk.read(path)

    def replace(self, path: str, data: bytes) -> None:
        self._disk.replace(path, data)

    def exists(self, path: str) -> bool:
        return self._disk.exists(path)

    def list(self, path: str) -> Sequence[str]:
        return self._disk.list(path)

    def size(self, path: str) -> int:
        return self._disk.size(path)

    def space(self, path: str) -> Space:
        return self._disk.space(path)

    def place(self, path: str) -> str:
        return self._disk.place(path)

    def make_directory(self, path: str, *, durable: bool = True) -> bool:
        return self._disk.make_directory(path, durable=durable)

    def rename(self, source: str, target: str) -> None:
        self._disk.rename(source, target)

    def unlink(self, path: str) -> None:
        self._disk.unlink(path)

    def remove_directory(self, path: str) -> None:
        self._disk.remove_directory(path)

    def fsync_directory(self, path: str) -> None:
        self._disk.fsync_directory(path)

    def lock(self, path: str) -> SimulatedLock:
        return self._disk.lock(path)


class ProcessThreads:
    """Threads on virtual time: the work is done at one instant a while after it was asked for, and its result is
    known a while after that. A process that ends in between has done the work, and nobody will ever hear of it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, random: Random) -> None:
        self._loop = loop
        self._random = random
        self._under_way: dict[asyncio.Future[Any], None] = {}
        self.closed = False

    def forget(self) -> None:
        """Let go of those who wait in a dead process: they would wait for ever."""
        for future in list(self._under_way):
            future.cancel()

    def __call__(self, function: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self._loop.create_future()
        self._under_way[future] = None
        future.add_done_callback(self._under_way.pop)
        self._loop.call_later(self._delay_s(), self._run, future, function, args)
        return future

    def _delay_s(self) -> float:
        slowness = 100 if self._random.random() < SLOW_THREAD_CHANCE else 1
        return slowness * self._random.uniform(0.00005, 0.003)

    def _run(self, future: "asyncio.Future[T]", function: Callable[..., T], args: tuple[Any, ...]) -> None:
        if self.closed or future.cancelled():
            return
        try:
            result = function(*args)
        except Exception as error:
            self._loop.call_later(self._delay_s(), self._finish, future, error, None)
        else:
            self._loop.call_later(self._delay_s(), self._finish, future, None, result)

    def _finish(self, future: "asyncio.Future[Any]", error: Exception | None, result: Any) -> None:
        if self.closed or future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)


class Process:
    """A broker that runs, or ran, on a machine."""

    def __init__(
        self,
        name: str,
        life: int,
        config: BrokerConfig,
        disk: SimulatedDisk,
        clock: MachineClock,
        network: SimulatedNetwork,
        random: Callable[[str], Random],
        store: Store | None = None,
    ) -> None:
        """`store`: holds the metadata of a cluster. None: the broker is alone."""
        self.life = life
        self.alive = True
        self.owner = Owner()
        """Pauses and resumes this process."""
        self._name = name
        self._network = network
        self._loop = asyncio.get_running_loop()
        self._disk = ProcessDisk(disk)
        self._threads = ProcessThreads(self._loop, random("threads"))
        self._starting: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self.broker = Broker(
            config,
            "/data",
            disk=self._disk,
            clock=clock,
            random=random("broker"),
            offload=self._threads,
            listen=self._listen,
            machine_code=False,
            store=store,
            connect=network.connector(name),
        )

    async def _listen(self, server: Server, listener: Listener) -> int:
        self._network.listen(self._name, listener.port, server.protocol_factory(listener.name))
        return listener.port

    async def start(self) -> BaseException | None:
        """None when it accepts connections; else why it does not: the failure of its start, or its death."""
        self._starting = self._loop.create_task(
            self.broker.start(), name=f"start of {self._name}", context=self.owner.make_context()
        )
        return await self._outcome(self._starting)

    async def stop(self) -> BaseException | None:
        """A clean shutdown; why it was none, if it was none."""
        for port in self.broker.ports.values():
            self._network.stop_listening(self._name, port)
        self.broker.ports.clear()
        self._stopping = self._loop.create_task(
            self.broker.stop(10.0), name=f"stop of {self._name}", context=self.owner.make_context()
        )
        return await self._outcome(self._stopping)

    async def _outcome(self, task: asyncio.Task[None]) -> BaseException | None:
        done, _ = await asyncio.wait([task], timeout=START_TIMEOUT_S)
        assert done, f"{task.get_name()} takes longer than {START_TIMEOUT_S:.0f} s"
        if not self.alive or task.cancelled():
            return Crashed(f"{self._name} died")
        return task.exception()

    def die(self, *, silent: bool) -> None:
        """From now on nothing this process still wants to do has any effect."""
        self.alive = False
        self._disk.closed = self._threads.closed = True
        self._network.crash(self._name, silent=silent)
        if self.owner.is_paused:
            self.owner.resume()
        self._loop.call_soon(self._bury)

    def _bury(self) -> None:
        """Cancel its tasks: they would wait for ever."""
        for task in (self._starting, self._stopping):
            if task is not None:
                task.cancel()
        with suppress(Crashed):
            self.broker.abort()
        self._threads.forget()

"""Connections that have answers ready in the same turn of the loop send them together, at its end."""

import asyncio

from ottla.server.traffic import ServerSettings, Traffic
from tests.simulation.loop import simulate


class Connection:
    """As much of a connection as the shared limits know."""

    address = "127.0.0.1"
    turns = 0

    def frame_began_at(self) -> float | None:
        return None

    def frame_filled(self) -> int:
        return 0

    def abort(self) -> None: ...

    def reconsider_reading(self) -> None: ...

    def sweep(self, now: float) -> None: ...

    def send(self) -> None:
        self.turns += 1


def test_one_alone_sends_at_once_and_others_of_the_turn_together_at_its_end() -> None:
    async def scenario() -> None:
        traffic = Traffic(ServerSettings())
        first, second, third = Connection(), Connection(), Connection()
        for connection in (first, first, second, third, second):
            traffic.send(connection)
        assert (first.turns, second.turns, third.turns) == (2, 0, 0)
        await asyncio.sleep(0)
        assert (first.turns, second.turns, third.turns) == (2, 1, 1)

    simulate(scenario())


def test_the_next_turn_is_anybodys() -> None:
    async def scenario() -> None:
        traffic = Traffic(ServerSettings())
        first, second = Connection(), Connection()
        traffic.send(first)
        await asyncio.sleep(0.001)
        traffic.send(second)
        assert (first.turns, second.turns) == (1, 1)

    simulate(scenario())

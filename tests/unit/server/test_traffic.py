"""Connections that have answers ready in the same iteration of the loop send them together, at its end."""

import asyncio

from ottla.server.traffic import ServerSettings, Traffic
from tests.simulation.loop import simulate


class Connection:
    """The part of a connection that the shared limits use."""

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


def test_the_first_sends_at_once_and_others_together_at_the_end_of_the_turn() -> None:
    async def scenario() -> None:
        traffic = Traffic(ServerSettings())
        first, second, third = Connection(), Connection(), Connection()
        for connection in (first, first, second, third, second):
            traffic.send(connection)
        assert (first.turns, second.turns, third.turns) == (2, 0, 0)
        await asyncio.sleep(0)
        assert (first.turns, second.turns, third.turns) == (2, 1, 1)

    simulate(scenario())


def test_any_connection_may_send_first_in_the_next_turn() -> None:
    async def scenario() -> None:
        traffic = Traffic(ServerSettings())
        first, second = Connection(), Connection()
        traffic.send(first)
        await asyncio.sleep(0.001)
        traffic.send(second)
        assert (first.turns, second.turns) == (1, 1)

    simulate(scenario())

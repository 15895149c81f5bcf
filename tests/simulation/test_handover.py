"""A broker that stops: its clients learn the new leader before it closes their connections, from it and from others."""

import asyncio

from ottla.broker.handover import MOVING_S, PATIENCE_S
from ottla.errors import ErrorCode
from tests.simulation.script import Trial, play

SLOW_S = PATIENCE_S / 2


def test_a_leader_that_stops_names_its_successor_to_its_clients() -> None:
    async def script(trial: Trial) -> None:
        stop = asyncio.create_task(trial.leader.stop())
        await trial.wait_until(lambda: trial.state_at(trial.leader).leader != trial.leader_id)
        await asyncio.sleep(MOVING_S / 2)
        result = await trial.produce()
        assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert result.current_leader_id == trial.state_at(trial.witness).leader != trial.leader_id
        assert await stop, "it stopped cleanly"
        assert set(trial.acknowledged) <= set(await trial.end_in_peace())

    play(script)


def test_connections_are_closed_when_every_broker_knows_the_new_leader() -> None:
    # A client that loses its connection asks any other broker, here one that hears of the handover late.
    async def script(trial: Trial) -> None:
        late = trial.followers[1]
        trial.store.cut(late.name)
        stop = asyncio.create_task(trial.leader.stop())
        await asyncio.sleep(SLOW_S)
        assert trial.state_at(late).leader == trial.leader_id, "it has not heard of the handover"
        assert not trial.channel.lost
        trial.store.heal(late.name)
        await trial.wait_until(lambda: trial.channel.lost)
        assert trial.state_at(late).leader not in (trial.leader_id, -1)
        assert await stop, "it stopped cleanly"

    play(script)

"""A leader that only the store cannot reach: it is deposed, answers its clients at once, and comes back by itself."""

import asyncio
from collections.abc import Sequence

from ottla.cluster.changes import Change, RegisterBroker
from ottla.cluster.image import Image
from ottla.cluster.recently_fenced import LISTED_S
from ottla.errors import ErrorCode
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.simulation.cluster import SESSION_TIMEOUT_S
from tests.simulation.script import TOPIC, Trial, play


def test_a_deposed_leader_answers_producers_that_wait() -> None:
    async def script(trial: Trial) -> None:
        await trial.depose()
        assert trial.state_at(trial.leader).leader == trial.leader_id, "it cannot know"
        async with asyncio.timeout(SESSION_TIMEOUT_S):
            assert (await trial.produce()).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    play(script)


async def list_brokers(trial: Trial) -> list[int]:
    """The brokers in an answer of the leader, which knows that it leads nothing any more."""
    answer = await trial.channel.call(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC.topic)]), 12)
    partition = answer.topics[0].partitions[0]
    assert (partition.leader_id, partition.error_code) == (-1, ErrorCode.LEADER_NOT_AVAILABLE)
    return [broker.node_id for broker in answer.brokers]


def test_a_deposed_leader_sends_its_clients_elsewhere() -> None:
    async def script(trial: Trial) -> None:
        groups = {f"group-{number}": await trial.find_coordinator(f"group-{number}") for number in range(20)}
        group = next(group for group, found in groups.items() if found.node_id == trial.leader_id)
        await trial.depose()
        assert (await trial.produce()).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await list_brokers(trial) == [1, 2, 3], "too sudden for librdkafka"
        await asyncio.sleep(LISTED_S)
        assert set(await list_brokers(trial)) == {1, 2, 3} - {trial.leader_id}
        assert (await trial.find_coordinator(group)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    play(script)


def test_it_comes_back_with_one_registration() -> None:
    async def script(trial: Trial) -> None:
        assert trial.witness.process is not None
        epochs: list[int] = []

        def note_registrations(before: Image, after: Image, changes: Sequence[Change]) -> None:
            epochs.extend(after.version for change in changes if isinstance(change, RegisterBroker))

        trial.witness.process.broker.node.metadata.on_change(note_registrations)
        await trial.depose()
        assert (await trial.produce()).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        trial.store.heal(trial.leader.name)
        await trial.wait_until(lambda: len(trial.state_at(trial.witness).isr) == 3)
        await asyncio.sleep(2 * SESSION_TIMEOUT_S)
        assert len(epochs) == 1

    play(script)


def test_a_leader_that_nobody_can_tell_anything_does_not_keep_its_producers() -> None:
    async def script(trial: Trial) -> None:
        trial.cut_off(trial.leader)
        assert (await trial.produce(timeout_ms=1000)).error_code == ErrorCode.REQUEST_TIMED_OUT
        await trial.depose()
        result = await trial.produce(timeout_ms=1000)
        assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert result.current_leader_id == -1, "it must not name itself"

    play(script)


def test_a_leader_goes_on_while_the_store_is_away_for_all() -> None:
    async def script(trial: Trial) -> None:
        trial.store.stop()
        for _ in range(10):
            await asyncio.sleep(SESSION_TIMEOUT_S)
            assert (await trial.produce()).error_code == ErrorCode.NONE

    play(script)


def test_clients_learn_of_brokers_to_ask_although_none_serves() -> None:
    # librdkafka forgets every broker that an answer does not list.
    async def script(trial: Trial) -> None:
        for machine in trial.followers:
            trial.store.cut(machine.name)
        await trial.wait_until(lambda: not any(map(trial.is_unfenced, trial.followers)))
        await asyncio.sleep(LISTED_S)
        trial.store.expire(trial.leader.name)
        listed: list[list[int]] = []
        while listed[-2:] != [[1, 2, 3], [trial.leader_id]]:  # until it has registered again
            answer = await trial.channel.call(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC.topic)]), 12)
            listed.append([broker.node_id for broker in answer.brokers])
            assert listed[-1] in ([1, 2, 3], [trial.leader_id])

    play(script)

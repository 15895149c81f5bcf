"""Brokers without data that share the metadata of a cluster while their sessions, connections and processes suffer.

Each broker registers, follows the log, campaigns for the controllership and changes the metadata now and then. The
faults are those of ZooKeeper and of processes: lost and late requests, lost answers, cut connections, reads that lag,
expired sessions, a store that is away, brokers that are paused, killed and restarted. After the faults everybody has
to agree again.
"""

import asyncio
import hashlib
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from ottla.cluster.changes import Change, ConfigResource, Endpoint, FenceBroker, SetConfig
from ottla.cluster.controller import Controller
from ottla.cluster.decision import Decision
from ottla.cluster.image import Image
from ottla.cluster.membership import Membership
from ottla.cluster.memory_store import Fate
from ottla.cluster.metadata import Metadata, OutcomeUnknown
from ottla.cluster.metadata_log import LogUnavailable
from ottla.cluster.registration import BrokerRegistration, unfence_broker
from ottla.cluster.store import Operation, StoreError
from ottla.errors import ErrorCode, KafkaError
from tests.simulation.loop import Owner, simulate
from tests.simulation.store.judge import BY_PEER, JudgedStore, Outcome
from tests.unit.cluster.cluster_members import offload

BROKERS = (1, 2, 3)
SESSION_S = 6.0
TROUBLE_S = 90.0
PEACE_S = 120.0
LOST_CHANCE = 0.02
CUT_CHANCE = 0.3
CLUSTER_ID = "a-cluster"


@dataclass(frozen=True)
class Settings:
    """What the controller goes by."""

    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_seconds: int = 10


@dataclass
class Verdict:
    seed: int
    digest: str
    problems: list[str]
    entries: int = 0
    lives: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        outcome = "; ".join(self.problems[:5]) or "kept every promise"
        return f"seed {self.seed}: {self.entries} entries, {self.lives} lives, log {self.digest}: {outcome}"


def run(seed: int, *, trace_lines: int | None = None) -> Verdict:
    return simulate(_run(seed))


class Life:
    """One life of a broker: from its start until it is killed, or the run ends."""

    def __init__(self, scenario: "Scenario", broker_id: int, number: int) -> None:
        self.id = broker_id
        self.number = number
        self.name = f"{broker_id}.{number}"
        self.owner = Owner()
        self.surprises: list[str] = []
        self.is_dead = False
        self._scenario = scenario
        self._random = Random(f"{scenario.seed} {self.name}")
        self._attempts = 0
        self._tasks: list[asyncio.Task[None]] = []
        self.membership = Membership(
            scenario.store.client(self.name), broker_id, [self._directory], self._random, offload
        )
        self.metadata = Metadata(self.membership.log, self._random, on_failure=self.surprises.append)
        self.metadata.on_change(self._check_image)
        self.controller = Controller(self.metadata, self.membership, Settings, self._random)
        self._begin(self._live(), "life")

    @property
    def _directory(self) -> bytes:
        return bytes([self.id]) * 16

    def die(self) -> None:
        self.is_dead = True
        self.metadata.close()
        self.membership.abandon()
        for task in self._tasks:
            task.cancel()

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        context = self.owner.make_context()
        loop = asyncio.get_running_loop()
        self._tasks.append(context.run(loop.create_task, self._watched(work), name=f"{name} of {self.name}"))

    async def _watched(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self.surprises.append(f"{error!r}")

    async def _live(self) -> None:
        while True:
            try:
                await self.membership.connect()
                await self.metadata.load()
                await self.membership.prepare()
                break
            except (StoreError, LogUnavailable):
                await asyncio.sleep(1)
        self._begin(self.metadata.follow(), "follower")
        self._begin(self.controller.run(), "controller")
        self._begin(self._change_now_and_then(), "changes")
        while True:
            broker = self.metadata.image.broker(self.id)
            if broker is None or broker.fenced or broker.epoch != self.membership.broker_epoch or not self._is_member():
                await self._register()
            await asyncio.sleep(0.2)

    def _is_member(self) -> bool:
        return self.membership.log._alive is not None

    async def _register(self) -> None:
        registration = BrokerRegistration(self.id, (self._directory,), (Endpoint("A", "h", 1, "PLAINTEXT"),))
        try:
            epoch = await self.membership.register(self.metadata, registration, CLUSTER_ID, timeout_s=20)
            await self.metadata.change(lambda image: unfence_broker(image, self.id, epoch), timeout_s=5)
        except KafkaError as error:
            if error.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
                self.die()
            # Otherwise it has timed out, or was replaced already: the next round sees.

    async def _change_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(self._random.uniform(0.05, 1.5))
            for _ in range(self._random.choice((1, 1, 1, 4))):
                self._attempts += 1
                key = f"{self.name}.{self._attempts}"
                if self._random.random() < 0.03:
                    self._begin(self._fence_somebody(), f"fencing {key}")
                else:
                    self._begin(self._change(key), f"change {key}")

    async def _change(self, key: str) -> None:
        outcomes = self._scenario.outcomes
        outcomes[key] = Outcome.UNKNOWN
        try:
            await self.metadata.change(
                lambda image: Decision([SetConfig(ConfigResource.BROKER, "", key, "1")], None),
                self._random.choice((0.5, 3.0, 15.0)),
            )
            outcomes[key] = Outcome.ACKNOWLEDGED
        except OutcomeUnknown:
            pass
        except KafkaError:
            outcomes[key] = Outcome.REFUSED

    async def _fence_somebody(self) -> None:
        """As a broker does that cannot reach another one. It may be wrong."""
        image = self.metadata.image
        suspects = [broker.id for broker in image.all_brokers() if broker.id != self.id and not broker.fenced]
        if suspects:
            suspect = self._random.choice(suspects)
            with suppress(KafkaError):
                await self.metadata.change(partial(fence_on_suspicion, broker_id=suspect), 3.0)

    def _check_image(self, before: Image, after: Image, changes: Sequence[Change]) -> None:
        expected = self._scenario.store.images.get(after.version)
        if expected is not None and expected != after:
            self._scenario.store.problems.append(f"DIFFERS version {after.version} on {self.name}")


def fence_on_suspicion(image: Image, broker_id: int) -> Decision[None]:
    broker = image.broker(broker_id)
    if broker is None or broker.fenced:
        return Decision([], None)
    value = str(image.version)
    return Decision([FenceBroker(broker.id, broker.epoch), SetConfig(ConfigResource.BROKER, "", BY_PEER, value)], None)


class Scenario:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.store = JudgedStore(SESSION_S)
        self.outcomes: dict[str, Outcome] = {}
        self.lives: list[Life] = []
        self.running: dict[int, Life] = {}
        self._random = Random(f"{seed} faults")
        self._network = Random(f"{seed} network")
        self._in_peace = False
        self.store.fate = self._fate

    def _fate(self, client: str, request: str, operations: Sequence[Operation]) -> Fate:
        draw = self._network
        request_s, answer_s = draw.uniform(0.0001, 0.002), draw.uniform(0.0001, 0.002)
        if self._in_peace or request == "open" or draw.random() >= LOST_CHANCE:
            return Fate(request_s, answer_s)
        kind = draw.randrange(3)
        if request == "commit" and draw.random() < CUT_CHANCE:  # who waits for this commit may give up meanwhile
            self.store.cut(client)
            asyncio.get_running_loop().call_later(draw.uniform(0.3, 4.0), self.store.heal, client)
        if kind == 0:
            return Fate(request_s, answer_s, is_lost=True)
        if kind == 1:
            return Fate(request_s, answer_s, is_lost=True, is_applied=False)
        # The client is back after 10 ms: such a request arrives before, while or after its outcome is looked for.
        return Fate(draw.uniform(0.005, draw.choice((0.03, 2.0))), answer_s, is_lost=True)

    def start(self, broker_id: int) -> None:
        life = Life(self, broker_id, sum(life.id == broker_id for life in self.lives) + 1)
        self.lives.append(life)
        self.running[broker_id] = life

    async def trouble(self) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + TROUBLE_S
        while loop.time() < end:
            await asyncio.sleep(self._random.uniform(0.1, 4.0))
            self._one_fault()

    def _one_fault(self) -> None:
        loop, draw, store = asyncio.get_running_loop(), self._random, self.store
        life = self.running[draw.choice(BROKERS)]
        duration = draw.choice((0.1, 1.0, 4.0, 9.0))
        match draw.randrange(9):
            case 0:
                store.cut(life.name)
                loop.call_later(duration, store.heal, life.name)
            case 1:
                store.disconnect(life.name)
            case 2 | 3:
                store.lag(life.name)
                loop.call_later(duration, store.catch_up, life.name)
            case 4:
                store.expire(life.name)
            case 5:
                if draw.random() < 0.3:
                    store.stop()
                    loop.call_later(duration, store.start)
            case 6:
                life.owner.pause()
                loop.call_later(duration, life.owner.resume)
            case 7:
                life.die()
                self.start(life.id)
            case 8:  # its data directory is started elsewhere while it is paused
                life.owner.pause()
                self.start(life.id)
                loop.call_later(duration, life.owner.resume)

    async def make_peace(self) -> None:
        self._in_peace = True
        await asyncio.sleep(10)  # the faults that have an end are over
        deadline = asyncio.get_running_loop().time() + PEACE_S
        while not self._all_agree():
            if asyncio.get_running_loop().time() > deadline:
                self.store.problems.append("STUCK: the brokers do not agree, or one is out of the cluster")
                return
            await asyncio.sleep(1)

    def _all_agree(self) -> bool:
        # Of two processes with the same data directory one gives up, and it may be the later one.
        lives = [life for life in self.lives if not life.is_dead]
        newest = self.store.image
        return (
            sorted(life.id for life in lives) == list(BROKERS)
            and all(life.metadata.image == newest for life in lives)
            and all(newest.serves(life.id) for life in lives)
            and sum(life.controller.is_active for life in lives) == 1
        )


async def _run(seed: int) -> Verdict:
    scenario = Scenario(seed)
    for broker_id in BROKERS:
        scenario.start(broker_id)
    await scenario.trouble()
    for life in scenario.lives:
        for task in life._tasks:
            if task.get_name().startswith("changes"):
                task.cancel()
    await scenario.make_peace()
    store = scenario.store
    store.judge_outcomes(scenario.outcomes)
    problems = [*store.problems, *(f"SURPRISE {each}" for life in scenario.lives for each in life.surprises)]
    digest = hashlib.sha256(repr(sorted(store.keys.items())).encode()).hexdigest()[:12]
    return Verdict(seed, digest, problems, store.image.version, len(scenario.lives), store.counts)

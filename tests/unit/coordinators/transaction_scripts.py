"""Plays scripts with the machine of transactions, and writes down what happens to the transactional id `x`.

    a inits               | Empty 100/0; a: 100/0
    a adds p0             | Ongoing 100/0 p0; a: done
    a commits             | PrepareCommit 100/1 p0; a: 100/1; markers commit 100/1 p0
    markers land          | CompleteCommit 100/1

The left column has the actions of clients; the right one has the stored records, the responses and the errands. Clients
remember their producer id and epoch, as real ones do. They use version 2 of the transaction protocol; those with a
capital letter use version 1. `a commits, unheard`: the response is lost, and the client keeps its id and epoch.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from immutables import Map

from ottla.cluster.image import Image
from ottla.config import BrokerConfig
from ottla.coordinators.formats import TRANSACTION_FORMAT
from ottla.coordinators.machine import NOBODY, Meters, Outcome, ProducerIdentity, Turn
from ottla.coordinators.transactions.machine import AbortWithFreshId, TransactionMachine, WriteMarkers
from ottla.coordinators.transactions.rules import FreshIdNeeded
from ottla.coordinators.transactions.transaction import TRANSITIONS, Transaction, group_by_topic
from ottla.errors import KafkaError
from ottla.topic_partition import TopicPartition
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

NOW = 1_700_000_000_000
ID = "x"
NOBODY_YET = ProducerIdentity(-1, -1)

Decide = Callable[[TransactionMachine, Turn], Outcome]
FreshDecide = Callable[[TransactionMachine, Turn, int | None], Outcome]


@dataclass
class Stage:
    """Does for one machine what the runtime does: appends, replays, replies."""

    version: int = 2
    """The feature transaction.version of the cluster."""
    config: BrokerConfig = field(default_factory=lambda: BrokerConfig.of({}))
    machine: TransactionMachine = field(default_factory=TransactionMachine)
    meters: Meters = field(default_factory=Meters.fresh)
    monotonic_ms: int = 1_000_000
    wall_ms: int = NOW
    fresh_id: int = 100
    log: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    errands: list[WriteMarkers | AbortWithFreshId] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)

    def turn(self, ticket: int = NOBODY) -> Turn:
        image = Image(features=Map({"transaction.version": self.version}))
        return Turn(self.monotonic_ms, self.wall_ms, image, self.config, self.meters, ticket)

    def ask(self, decide: Decide) -> object:
        """Run a turn and return its reply, or raise the KafkaError."""
        outcome = decide(self.machine, self.turn(ticket=7))
        self.apply(outcome)
        (reply,) = [reply.response for reply in outcome.replies if reply.ticket == 7]
        if isinstance(reply, KafkaError):
            raise reply
        return reply

    def ask_with_id(self, decide: FreshDecide) -> object:
        try:
            return self.ask(lambda machine, turn: decide(machine, turn, None))
        except FreshIdNeeded:
            fresh_id = self.new_id()
            return self.ask(lambda machine, turn: decide(machine, turn, fresh_id))

    def new_id(self) -> int:
        self.fresh_id += 1
        return self.fresh_id - 1

    def apply(self, outcome: Outcome) -> None:
        for effect in outcome.effects:
            effect()
        for record in outcome.records:
            stored = TRANSACTION_FORMAT.encode(record)
            self.log.append(stored)
            again = TRANSACTION_FORMAT.decode(*stored)
            assert again == record, "what is written is read again"
            before = self.known
            self.machine.replay(record, self.wall_ms, None)
            if before is not None and self.known is not None:
                assert self.known.state in TRANSITIONS[before.state]
            self.seen.append(shown(self.known))
        for errand in outcome.errands:
            self.errands.append(errand)
            if isinstance(errand, WriteMarkers):
                outcome_name = "commit" if errand.committed else "abort"
                self.seen.append(f"markers {outcome_name} {name(errand.producer)} {places(errand.partitions)}")

    @property
    def known(self) -> Transaction | None:
        return self.machine.by_id.get(ID)

    # Events other than requests

    def land(self) -> None:
        errands, self.errands = self.errands, []
        for errand in errands:
            self.finish(errand)

    def finish(self, errand: WriteMarkers | AbortWithFreshId) -> None:
        """Run the turn that follows an errand."""
        if isinstance(errand, WriteMarkers):
            self.apply(self.machine.complete(errand.transactional_id, errand.producer, self.turn()))
        else:
            self.apply(self.machine.abort_overdue(*errand, self.turn(), self.new_id()))

    def wait(self, milliseconds: int) -> None:
        """Let time pass, and wake the machine whenever it wants to be woken."""
        end = self.monotonic_ms + milliseconds
        while (wake_at := self.machine.wake_at) is not None and wake_at <= end:
            step = max(wake_at - self.monotonic_ms, 0)
            self.monotonic_ms += step
            self.wall_ms += step
            self.apply(self.machine.wake(self.turn()))
        self.wall_ms += end - self.monotonic_ms
        self.monotonic_ms = end

    def restart(self) -> None:
        """Another coordinator loads the log, with another monotonic clock."""
        before = dict(self.machine.by_id)
        self.machine = TransactionMachine()
        self.errands.clear()
        self.monotonic_ms = 5_000
        for stored in self.log:
            record = TRANSACTION_FORMAT.decode(*stored)
            assert record is not None
            self.machine.replay(record, NOW, None)
        assert self.machine.by_id == before
        self.apply(self.machine.finish_loading(self.turn()))


@dataclass
class Client:
    version: int
    producer: ProducerIdentity = NOBODY_YET


def play(script: str, stage: Stage | None = None) -> Stage:
    """Play a script and check the events of every line."""
    stage = stage or Stage()
    clients: dict[str, Client] = {}
    for line in script.strip().splitlines():
        left, _, right = (part.strip() for part in line.partition("|"))
        stage.seen.clear()
        act(stage, clients, left)
        assert "; ".join(stage.seen) == right, f"after {left!r}"
    return stage


def act(stage: Stage, clients: dict[str, Client], text: str) -> None:
    if text in ("markers land", "errands are done"):
        stage.land()
    elif text == "coordinator restarts":
        stage.restart()
    elif match := re.fullmatch(r"(\d+) ms pass", text):
        stage.wait(int(match[1]))
    elif match := re.fullmatch(r"wall clock jumps (-?\d+) ms", text):
        stage.wall_ms += int(match[1])
    else:
        command, _, note = text.partition(", ")
        who, verb, *words = command.split()
        client = clients.setdefault(who, Client(1 if who.isupper() else 2))
        try:
            reply = request(stage, client, verb, words)
        except KafkaError as error:
            stage.seen.append(f"{who}: {error.code.name}")
            return
        stage.seen.append(f"{who}: {answered(client, reply, unheard=note == 'unheard')}")


def request(stage: Stage, client: Client, verb: str, words: list[str]) -> object:
    producer = client.producer
    options = dict(word.split("=") for word in words if "=" in word)
    partitions = [TopicPartition("p", int(word[1:])) for word in words if "=" not in word and word[0] == "p"]
    if verb in ("inits", "continues"):
        expected = producer if verb == "continues" else NOBODY_YET
        asked = InitProducerIdRequest(
            transactional_id=ID,
            transaction_timeout_ms=int(options.get("timeout", 60_000)),
            producer_id=expected.id,
            producer_epoch=expected.epoch,
        )
        return stage.ask_with_id(lambda machine, turn, fresh_id: machine.init_producer_id(asked, turn, fresh_id))
    if verb == "adds":
        version = client.version if client.version == 2 else 0
        return stage.ask(lambda machine, turn: machine.add_partitions(ID, producer, partitions, turn, version=version))
    if verb == "verifies":
        return stage.ask(lambda machine, turn: machine.find_missing_partitions(ID, producer, partitions, turn))
    assert verb in ("commits", "aborts"), verb
    end = EndTxnRequest(
        transactional_id=ID, producer_id=producer.id, producer_epoch=producer.epoch, committed=verb == "commits"
    )
    version = client.version if client.version == 2 else 0
    return stage.ask_with_id(lambda machine, turn, fresh_id: machine.end(end, turn, version=version, fresh_id=fresh_id))


def answered(client: Client, reply: object, *, unheard: bool) -> str:
    if isinstance(reply, InitProducerIdResponse | EndTxnResponse) and reply.producer_id >= 0:
        producer = ProducerIdentity(reply.producer_id, reply.producer_epoch)
        if not unheard:
            client.producer = producer
        return name(producer)
    if isinstance(reply, frozenset):
        return f"missing {places(reply)}" if reply else "all there"
    return "done"


def shown(transaction: Transaction | None) -> str:
    if transaction is None:
        return "gone"
    following = f" then {transaction.next_producer_id}" if transaction.next_producer_id >= 0 else ""
    inside = f" {places(transaction.partitions)}" if transaction.partitions else ""
    return f"{transaction.state.shown} {name(transaction.producer)}{following}{inside}"


def name(producer: ProducerIdentity) -> str:
    return f"{producer.id}/{producer.epoch}"


def places(partitions: frozenset[TopicPartition]) -> str:
    return " ".join(f"p{index}" for index in group_by_topic(partitions).get("p", []))

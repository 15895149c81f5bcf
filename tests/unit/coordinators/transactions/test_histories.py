"""Random histories of transactions, compared with a model that knows only their definition: all or nothing.

Producers of both versions write, commit, abort, lose answers, and come back under the same transactional id.
Coordinators die between any two records, markers are late, and transactions time out. The partitions use the real
producer state of a log. In the end every transaction is whole: committed everywhere if its producer was told so,
nowhere if it was told the opposite, and none is left open.
"""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.coordinators.machine import Outcome, ProducerIdentity
from ottla.coordinators.transactions.machine import WriteMarkers
from ottla.coordinators.transactions.transaction import Transaction
from ottla.errors import ErrorCode, KafkaError
from ottla.records import batch
from ottla.storage.producer_state import ProducerStates
from ottla.topic_partition import TopicPartition
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.unit.coordinators.transaction_scripts import ID, NOBODY_YET, NOW, Stage

PARTITIONS = range(3)
CLIENTS = range(4)


@dataclass
class Log:
    """A partition: which producer wrote what in which transaction, and how the transaction ended."""

    producers: ProducerStates = field(default_factory=ProducerStates)
    offset: int = 0
    open: dict[int, list[int]] = field(default_factory=dict)
    """The open transactions of each producer id that have records here, by number."""
    outcomes: dict[int, set[bool]] = field(default_factory=dict)

    def append(self, producer: ProducerIdentity, sequence: int, number: int) -> None:
        header = batch.read_header(
            batch.encode(
                [(None, b"", (), NOW)],
                producer_id=producer.id,
                producer_epoch=producer.epoch,
                base_sequence=sequence,
                transactional=True,
            )
        )
        assert self.producers.check(header) is None, "no batch is sent twice here"
        self.producers.replay(header, self.offset)
        self.offset += 1
        self.open.setdefault(producer.id, []).append(number)

    def end(self, errand: WriteMarkers) -> None:
        producer, committed = errand.producer, errand.committed
        if errand.version >= 2:
            self.producers.check_next_epoch(*producer)
        data = batch.encode_control(producer.id, producer.epoch, committed, 0, NOW)
        header, marker = batch.read_header(data), batch.control_type(data)
        self.producers.check_marker(header, marker)
        self.producers.replay(header, self.offset, marker)
        self.offset += 1
        for number in self.open.pop(producer.id, []):
            self.outcomes.setdefault(number, set()).add(committed)


@dataclass
class Client:
    version: int
    producer: ProducerIdentity = NOBODY_YET
    number: int | None = None
    """The number of its open transaction."""
    ending: bool | None = None
    """The client asked for this end and has no answer yet, so it asks for the same again."""
    sequences: dict[int, int] = field(default_factory=dict)

    def become(self, producer: ProducerIdentity) -> None:
        if producer != self.producer:
            self.sequences.clear()
        self.producer = producer
        self.number = self.ending = None


class Histories(RuleBasedStateMachine):
    @initialize(version=st.sampled_from([0, 2]), epoch=st.sampled_from([0, 32764]))
    def begin(self, version: int, epoch: int) -> None:
        self.stage = Stage(version=version)
        self.clients = [Client(version if number % 2 else 0) for number in CLIENTS]
        self.logs = [Log() for _ in PARTITIONS]
        self.numbers = 0
        self.told: dict[int, bool] = {}
        self.late: list[tuple[ProducerIdentity, int, int]] = []
        if epoch:  # an epoch close to the largest one
            self.init(self.clients[0], NOBODY_YET)
            owner = ProducerIdentity(self.clients[0].producer.id, epoch)
            self.stage.apply(Outcome(records=[Transaction(ID, *owner, 60_000, NOW, version=version).record]))
            self.clients[0].become(owner)

    # What clients do

    @rule(client=st.sampled_from(CLIENTS), continues=st.booleans())
    def initialise(self, client: int, continues: bool) -> None:
        owner = self.clients[client]
        self.init(owner, owner.producer if continues else NOBODY_YET)

    def init(self, client: Client, expected: ProducerIdentity) -> None:
        request = InitProducerIdRequest(
            transactional_id=ID,
            transaction_timeout_ms=20_000,
            producer_id=expected.id,
            producer_epoch=expected.epoch,
        )
        try:
            response = self.stage.ask_with_id(
                lambda machine, turn, fresh: machine.init_producer_id(request, turn, fresh)
            )
        except KafkaError as error:
            assert error.code in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.PRODUCER_FENCED)
            return
        assert isinstance(response, InitProducerIdResponse)
        client.become(ProducerIdentity(response.producer_id, response.producer_epoch))

    @rule(client=st.sampled_from(CLIENTS), partition=st.sampled_from(PARTITIONS))
    def write(self, client: int, partition: int) -> None:
        sender = self.clients[client]
        if sender.producer == NOBODY_YET or sender.ending is not None:
            return
        if sender.number is None:
            self.numbers += 1
            sender.number = self.numbers
        producer, place, number = sender.producer, [TopicPartition("p", partition)], sender.number
        sequence = sender.sequences.get(partition, 0)
        try:
            self.stage.ask(
                lambda machine, turn: machine.add_partitions(ID, producer, place, turn, version=sender.version)
            )
            if sender.version < 2:
                missing = self.stage.ask(
                    lambda machine, turn: machine.find_missing_partitions(ID, producer, place, turn)
                )
                assert missing == frozenset()
            self.logs[partition].append(producer, sequence, number)
        except KafkaError as error:
            assert error.code in (
                ErrorCode.CONCURRENT_TRANSACTIONS,
                ErrorCode.PRODUCER_FENCED,
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            )
            return
        sender.sequences[partition] = sequence + 1
        if sender.version == 2:
            self.late.append((producer, partition, number))

    @precondition(lambda self: self.late)
    @rule(data=st.data())
    def write_late(self, data: st.DataObject) -> None:
        """Let a batch of an earlier transaction arrive now, as the first one of its partition."""
        producer, partition, number = data.draw(st.sampled_from(self.late))
        if number not in self.told and number not in self.logs[partition].outcomes:
            return  # its transaction may still be open, so the batch is not late
        try:
            self.stage.ask(
                lambda machine, turn: machine.add_partitions(
                    ID, producer, [TopicPartition("p", partition)], turn, version=2
                )
            )
        except KafkaError:
            return
        raise AssertionError("what is late must not reach the next transaction")

    @rule(client=st.sampled_from(CLIENTS), committed=st.booleans(), heard=st.booleans())
    def end(self, client: int, committed: bool, heard: bool) -> None:
        sender = self.clients[client]
        if sender.number is None:
            return
        wanted = committed if sender.ending is None else sender.ending
        sender.ending = wanted
        request = EndTxnRequest(
            transactional_id=ID,
            producer_id=sender.producer.id,
            producer_epoch=sender.producer.epoch,
            committed=wanted,
        )
        try:
            response = self.stage.ask_with_id(
                lambda machine, turn, fresh: machine.end(request, turn, version=sender.version, fresh_id=fresh)
            )
        except KafkaError as error:
            if error.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                sender.become(NOBODY_YET)  # the client starts over
            return
        assert isinstance(response, EndTxnResponse)
        if not heard:
            return
        self.told[sender.number] = wanted
        version_2 = sender.version == 2
        sequences = sender.sequences
        sender.become(ProducerIdentity(response.producer_id, response.producer_epoch) if version_2 else sender.producer)
        if not version_2:
            sender.sequences = sequences

    # What happens to them

    @precondition(lambda self: self.stage.errands)
    @rule(whole=st.booleans())
    def markers(self, whole: bool) -> None:
        """Write the markers of one transaction; or some of them, and then the coordinator dies."""
        errand = self.stage.errands.pop(0)
        if isinstance(errand, WriteMarkers):
            places = sorted(errand.partitions)
            for _, partition in places if whole else places[:1]:
                self.logs[partition].end(errand)
            if not whole:
                self.stage.restart()
                return
        self.stage.finish(errand)

    @rule()
    def coordinator_dies(self) -> None:
        self.stage.restart()

    @rule(milliseconds=st.sampled_from([1_000, 40_000]))
    def time_passes(self, milliseconds: int) -> None:
        self.stage.wait(milliseconds)

    # What must hold

    @invariant()
    def transactions_are_whole(self) -> None:
        for number in range(1, self.numbers + 1):
            outcomes = self.outcomes(number)
            assert len(outcomes) < 2, f"transaction {number} is committed and aborted"
            if number in self.told:
                assert outcomes <= {self.told[number]}

    def outcomes(self, number: int) -> set[bool]:
        return {outcome for log in self.logs for outcome in log.outcomes.get(number, ())}

    def teardown(self) -> None:
        if not hasattr(self, "stage"):
            return
        self.stage.restart()
        for _ in range(4):
            while self.stage.errands:
                self.markers(whole=True)
            self.stage.wait(60_000)
        for log in self.logs:
            assert not log.open, "a transaction hangs"
            assert log.producers.last_stable_offset(log.offset) == log.offset
        self.transactions_are_whole()


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)

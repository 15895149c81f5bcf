"""What leaders and followers do: append, copy, acknowledge, and propose ISRs. All on what they have replayed."""

from typing import TYPE_CHECKING

from ottla.cluster.entities import PartitionImage
from ottla.cluster.image import Image
from ottla.cluster.isr_changes import IsrChange, change_isr
from ottla.errors import ErrorCode, KafkaError
from tests.simulation.metadata.machines import Machine, Proposal, Replica, Where, state_of

if TYPE_CHECKING:
    from tests.simulation.metadata.play import Play


class Leaders:
    def __init__(self, play: "Play") -> None:
        self._play = play
        self._random = play.random
        self._late: list[tuple[Machine, int, Where, Proposal]] = []
        """Proposals that were made and not decided yet: the machine, its broker epoch then, and what it proposed."""
        self._numbers = 0

    def produce(self) -> None:
        found = [led for machine in self._play.machines.values() for led in machine.led()]
        if found:
            _, state, replica = self._random.choice(found)
            self._numbers += 1
            replica.records.append((state.leader_epoch, self._numbers))

    def fetch(self) -> None:
        machine = self._random.choice(list(self._play.machines.values()))
        if machine.is_up and machine.replicas:
            where = self._random.choice(sorted(machine.replicas))
            self._fetch(machine, where, self._random.choice((1, 3, 100)))

    def _fetch(self, machine: Machine, where: Where, count: int) -> None:
        state, replica = state_of(machine.view, where), machine.usable(where)
        if state is None or replica is None or state.leader in (machine.id, -1):
            return
        leader = self._play.machines[state.leader]
        known, source = state_of(leader.view, where), leader.usable(where)
        if not leader.is_up or source is None or known is None:
            return
        if known.leader != leader.id or known.leader_epoch != state.leader_epoch or machine.id not in known.replicas:
            return
        common = 0
        for mine, theirs in zip(replica.records, source.records, strict=False):
            if mine != theirs:
                break
            common += 1
        del replica.records[common:]
        source.ends[machine.id] = (common, machine.epoch)
        replica.records.extend(source.records[common : common + count])
        if len(replica.records) >= source.high_watermark:
            machine.lost.discard(where)
        self._advance(leader, where, known, source)

    def advance_all(self, machine: Machine) -> None:
        for where, state, replica in machine.led():
            self._advance(machine, where, state, replica)

    def _advance(self, leader: Machine, where: Where, state: PartitionImage, replica: Replica) -> None:
        """Move the high watermark over the maximal ISR, and acknowledge what is below it."""
        needed = self._count_needed(leader.view, where)
        if len(state.isr) < needed:
            return
        members = set(state.isr).union(*({member for member, _ in each.change.isr} for each in replica.proposals))
        ends = [replica.ends.get(member, (0, 0))[0] for member in members if member != leader.id]
        committed = min([len(replica.records), *ends])
        if committed > replica.high_watermark:
            fresh = replica.records[replica.high_watermark : committed]
            covered = min(needed, self._count_needed(self._play.image, where))
            self._play.ledger.acknowledge(where, replica.high_watermark, fresh, covered, state.leader_epoch)
            replica.high_watermark = committed
            self._play.check_candidates(where)

    def _count_needed(self, image: Image, where: Where) -> int:
        """How many replicas must be in sync for the leader to commit anything."""
        state = state_of(image, where)
        if state is None:
            return 0
        return min(image.topic_rules(image.topic_names[where[0]]).min_insync_replicas, len(state.replicas))

    def propose(self) -> None:
        """A leader takes followers in that have caught up, or drops one. The answer may be late, or lost."""
        found = [(machine, *led) for machine in self._play.machines.values() for led in machine.led()]
        if not found:
            return
        machine, where, state, replica = self._random.choice(found)
        caught_up = [
            member
            for member in state.replicas
            if member != machine.id
            and member in replica.ends
            and replica.ends[member][0] >= max(replica.high_watermark, replica.epoch_start)
        ]
        members = [*state.isr, *(member for member in caught_up if member not in state.isr)]
        if self._random.random() < 0.4:
            members = [member for member in members if member == machine.id or self._random.random() < 0.6]
        if set(members) == set(state.isr):
            return
        isr = tuple((member, self._epoch_of(machine, replica, member)) for member in members)
        proposal = Proposal(IsrChange(*where, state.leader_epoch, state.partition_epoch, isr))
        replica.proposals.append(proposal)
        fate = self._random.random()
        if fate < 0.2:
            self._late.append((machine, machine.epoch, where, proposal))
            return
        self._decide(machine, machine.epoch, where, proposal)
        if fate < 0.8 and machine.is_up:
            machine.follow(self._play.image)
            self.advance_all(machine)

    def _epoch_of(self, machine: Machine, replica: Replica, member: int) -> int:
        if member == machine.id:
            return machine.epoch
        if member in replica.ends:
            return replica.ends[member][1]
        broker = machine.view.broker(member)
        return -1 if broker is None else broker.epoch

    def submit_late(self) -> None:
        if self._late:
            machine, epoch, where, proposal = self._late.pop(self._random.randrange(len(self._late)))
            self._decide(machine, epoch, where, proposal)

    def _decide(self, machine: Machine, epoch: int, where: Where, proposal: Proposal) -> None:
        play = self._play
        before = state_of(play.image, where)
        proposal.decided_at = play.image.version
        try:
            decision = change_isr(play.image, machine.id, epoch, [proposal.change])
        except KafkaError as error:
            play.note(f"refused: {error}")
            return
        (refusal,) = decision.result
        if refusal is not None and refusal.code is not ErrorCode.NEW_LEADER_ELECTED:
            play.note(f"refused: {refusal}")
            return
        if before is None or proposal.change.partition_epoch != before.partition_epoch:
            play.problems.append(f"OVERWRITTEN: {proposal.change} was not made on {before}")
        play.append(decision)

    def copy_everything(self) -> None:
        for machine in self._play.machines.values():
            for where in sorted(machine.replicas):
                for _ in range(2):
                    self._fetch(machine, where, 1_000_000)

"""A random history of a cluster: brokers register, die and lose disks; leaders change ISRs; partitions move.

Everything that changes the metadata goes through the deciders, on the newest image; machines act on what they have
replayed. After every entry the rules of the metadata are checked, and that nobody who may lead lacks a record.
"""

from collections.abc import Callable
from random import Random
from typing import Any

from ottla.cluster import elections, offline, reassignments, registration, topics
from ottla.cluster.changes import (
    NO_LEADER,
    Change,
    ConfigResource,
    Endpoint,
    FenceBroker,
    RegisterBroker,
    SetConfig,
    TakeReplicasOffline,
    UnregisterBroker,
)
from ottla.cluster.decision import Decision
from ottla.cluster.encoding import decode, encode
from ottla.cluster.image import EMPTY, Image
from ottla.config import BrokerConfig
from ottla.errors import KafkaError
from ottla.topic_partition import TopicPartition
from tests.simulation.metadata.checks import check_entry, check_snapshot
from tests.simulation.metadata.leaders import Leaders
from tests.simulation.metadata.ledger import Ledger
from tests.simulation.metadata.machines import Machine, Where, partitions_of, state_of

CONFIG = BrokerConfig.of({})
ENDPOINTS = (Endpoint("PLAINTEXT", "h", 1, "PLAINTEXT"),)


class Play:
    """`is_lossy`: machines lose data too, within the budget; otherwise processes are only killed."""

    def __init__(self, seed: int, note: Callable[[str], None]) -> None:
        self.random = Random(seed)
        self.note = note
        self.problems: list[str] = []
        self.image = EMPTY
        self.images: list[Image] = [EMPTY]
        self.ledger = Ledger()
        self.is_lossy = self.random.random() < 0.6
        self.has_operators = self.random.random() < 0.5
        """Whether somebody reassigns, unregisters, configures and allows unclean elections."""
        count = self.random.choice((1, 2, 2, 3, 3, 3, 3, 4))
        self.machines = {
            broker_id: Machine(broker_id, [self._new_id() for _ in range(self.random.choice((1, 1, 2)))])
            for broker_id in range(1, count + 1)
        }
        self.leaders = Leaders(self)
        self.lives = 0

    def run(self, steps: int) -> None:
        for machine in self.machines.values():
            self.start(machine)
            self.unfence(machine)
        self.create_topic()
        quiet = [self.leaders.produce] * 8 + [self.leaders.fetch] * 30 + [self.leaders.propose] * 12
        quiet += [self.catch_up] * 12 + [self.leaders.submit_late] * 2
        trouble: list[Callable[[], None]] = [self.kill, self.kill, self.stop, self.fence, self.fence, self.fence]
        trouble += [self.start_one] * 3 + [self.unfence_one] * 4 + [self.register_again] * 2 + [self.prefer]
        if self.has_operators:
            trouble += [self.reassign, self.reassign, self.finish, self.finish, self.configure, self.recreate]
            trouble += [self.unregister, self.allow_unclean]
        if self.is_lossy:
            trouble += [self.fail_directory]
        for _ in range(steps):
            self.random.choice(quiet if self.random.random() < 0.8 else trouble)()
            if self.problems:
                return
            if self.random.random() < 0.02:
                self.problems += check_snapshot(self.image)
        self.heal()

    # The metadata log

    def append(self, decision: Decision[Any]) -> bool:
        """Append what was decided on the newest image. Returns whether there was anything to append."""
        if not decision.changes:
            return False
        changes: tuple[Change, ...] = tuple(decision.changes)
        if self.random.random() < 0.2:
            changes = decode(encode(changes))
        before, self.image = self.image, self.image.replay(self.image.version + 1, changes)
        self.images.append(self.image)
        self.note(f"{self.image.version}: {', '.join(map(str, changes))}")
        self._follow_ledger(before, changes)
        self.problems += check_entry(before, self.image)
        for where in partitions_of(self.image):
            self.check_candidates(where)
        return True

    def attempt(self, decide: Callable[[Image], Decision[Any]]) -> bool:
        """Like `append`, for a decider that may refuse."""
        try:
            return self.append(decide(self.image))
        except KafkaError as error:
            self.note(f"refused: {error}")
            return False

    def check_candidates(self, where: Where) -> None:
        """Everyone who may lead without an unclean election has every record that was acknowledged."""
        state = state_of(self.image, where)
        if state is None:
            return
        lossy = self.ledger.of(where).lossy
        for member in (*state.isr, *state.elr):
            if member not in lossy:
                missing = self.ledger.find_missing(where, member, self.machines)
                leads = "leads" if member == state.leader else "may lead"
                if missing is not None:
                    self.problems.append(f"LOST: broker {member} {leads} {where[1]} without {missing}; {state}")

    def _follow_ledger(self, before: Image, changes: tuple[Change, ...]) -> None:
        for where in partitions_of(before):
            if state_of(self.image, where) is None:
                self.ledger.forget(where)
        for change in changes:
            if isinstance(change, UnregisterBroker) or (
                isinstance(change, RegisterBroker) and not self._is_intact(before, change)
            ):
                self._taint(self.machines[change.broker_id])
            elif isinstance(change, TakeReplicasOffline):
                for topic_id, indexes in change.replicas:
                    for index in indexes:
                        self.ledger.taint((topic_id, index), change.broker_id)
        for where in partitions_of(self.image):
            was, state = state_of(before, where), state_of(self.image, where)
            rules = self.image.topic_rules(self.image.topic_names[where[0]])
            self.ledger.limit(where, rules.min_insync_replicas)
            if was is None or state is None or was is state:
                continue
            self.ledger.restore(where, [member for member in state.isr if self._is_present(member)])
            if state.replicas != was.replicas:
                self.ledger.limit(where, len(state.isr) + len(state.elr))
            if state.recovering and state.leader != was.leader:
                if self._is_excused(where):
                    self.ledger.excuse(where, state.leader_epoch)
                    self.machines[state.leader].lost.discard(where)
                elif where in self.machines[state.leader].lost and self._is_present(state.leader):
                    self.problems.append(f"EMPTY: broker {state.leader} leads {where[1]} without its log: {state}")

    def _is_intact(self, before: Image, change: RegisterBroker) -> bool:
        """Whether the broker says that it kept everything. Without one of its directories nobody knows what it kept."""
        known = before.broker(change.broker_id)
        return change.clean and (known is None or set(known.directories) <= set(change.directories))

    def _is_present(self, broker_id: int) -> bool:
        """Whether the process that the metadata knows is still the one on the machine."""
        broker, machine = self.image.broker(broker_id), self.machines[broker_id]
        return broker is not None and machine.is_up and broker.epoch == machine.epoch

    def _is_excused(self, where: Where) -> bool:
        """Whether an unclean election was allowed or asked for."""
        return self.unclean_requested or self.image.topic_rules(self.image.topic_names[where[0]]).unclean_election

    unclean_requested = False

    # What happens to machines

    def catch_up(self) -> None:
        machine = self.random.choice(list(self.machines.values()))
        if machine.is_up and machine.view.version < self.image.version:
            newest = self.random.random() < 0.7
            version = self.image.version if newest else self.random.randint(machine.view.version, self.image.version)
            machine.follow(self.images[version])
            self.leaders.advance_all(machine)

    def kill(self) -> None:
        machine = self._pick(is_up=True)
        if machine is None or not self._may_trouble():
            return
        kinds = ["process"] if not self.is_lossy else ["process", "power", "disk"]
        kind = self.random.choice(kinds)
        self.note(f"{kind} of {machine.id} dies")
        machine.forget()
        machine.stopped_at = None
        self._taint(machine)
        if kind != "process":
            for replica in machine.replicas.values():
                if self.random.random() < 0.7:
                    del replica.records[self.random.randint(0, len(replica.records)) :]
        if kind == "disk":
            self._replace_disks(machine)
        if self.random.random() < 0.4:  # it is back before anybody noticed
            self.start(machine)
            if self.random.random() < 0.7:
                self.unfence(machine)
            for _ in range(self.random.choice((0, 6))):  # leaders still remember how far it was
                self.catch_up()
                self.leaders.propose()

    def _replace_disks(self, machine: Machine) -> None:
        for position, directory in enumerate(machine.directories):
            if position == 0 or self.random.random() < 0.5:
                machine.directories[position] = self._new_id()
                machine.failed.discard(directory)
                for where in [each for each, replica in machine.replicas.items() if replica.directory == directory]:
                    del machine.replicas[where]
                    machine.lost.add(where)

    def _taint(self, machine: Machine) -> None:
        for where in partitions_of(self.image):
            state = state_of(self.image, where)
            if state is not None and machine.id in state.replicas:
                self.ledger.taint(where, machine.id)

    def _may_trouble(self) -> bool:
        """Most of the time a majority runs, or little would be acknowledged."""
        down = sum(not machine.is_up for machine in self.machines.values())
        return 2 * down < len(self.machines) or self.random.random() < 0.3

    def stop(self) -> None:
        machine = self._pick(is_up=True)
        if machine is None or not self._may_trouble() or machine.failed:
            return
        self.attempt(lambda image: registration.begin_shutdown(image, machine.id, machine.epoch))
        if self.random.random() < 0.7:
            machine.follow(self.image)
        self.note(f"{machine.id} stops cleanly")
        machine.stopped_at = machine.epoch
        machine.forget()
        if self.random.random() < 0.5:
            self.attempt(lambda image: registration.fence_broker(image, machine.id, machine.epoch))

    def fence(self) -> None:
        """A controller fences whom it cannot see: mostly the dead, sometimes the slow."""
        machine = self._pick(is_up=self.random.random() < 0.1)
        broker = None if machine is None else self.image.broker(machine.id)
        if broker is not None and not broker.fenced:
            self.append(Decision([FenceBroker(broker.id, broker.epoch)], None))

    def start_one(self) -> None:
        machine = self._pick(is_up=False)
        if machine is not None:
            if self.random.random() < 0.5:
                machine.failed.clear()
            self.start(machine)

    def start(self, machine: Machine) -> None:
        self.lives += 1
        machine.is_up = True
        if not self._register(machine, machine.stopped_at, None):
            machine.is_up = False
            return
        machine.stopped_at = None
        self._report_missing(machine)
        machine.follow(self.image)

    def register_again(self) -> None:
        """A process that sees itself fenced, or whose session expired, registers again."""
        machine = self._pick(is_up=True)
        if machine is None or not machine.is_serving:
            return
        broker = self.image.broker(machine.id)
        if broker is None or broker.fenced or self.random.random() < 0.1:
            machine.is_serving = False
            if self._register(machine, None, machine.epoch):
                self._report_failed(machine)
                machine.follow(self.image)

    def _register(self, machine: Machine, stopped_at: int | None, previous_epoch: int | None) -> bool:
        # A process that runs knows the ids of its failed directories; one that starts cannot read them.
        kept = tuple(each for each in machine.directories if previous_epoch is not None or each not in machine.failed)
        wanted = registration.BrokerRegistration(
            machine.id, kept, ENDPOINTS, stopped_at_epoch=stopped_at, previous_epoch=previous_epoch
        )
        if not self.attempt(lambda image: registration.register_broker(image, wanted, "cluster")):
            return False
        machine.epoch = self.image.version
        return True

    def _report_missing(self, machine: Machine) -> None:
        """A broker that came back without directories says which logs are not there, before it serves."""
        self._report_failed(machine)
        if not self.image.brokers[machine.id].lost_directories:
            return
        missing = [
            where
            for where in partitions_of(self.image)
            if where not in machine.replicas and machine.id in self._replicas(where)
        ]
        lost = not machine.failed
        self.attempt(lambda image: offline.take_replicas_offline(image, machine.id, machine.epoch, missing, lost=lost))

    def _report_failed(self, machine: Machine) -> None:
        failed = [where for where, replica in sorted(machine.replicas.items()) if replica.directory in machine.failed]
        self.attempt(lambda image: offline.take_replicas_offline(image, machine.id, machine.epoch, failed))

    def _replicas(self, where: Where) -> tuple[int, ...]:
        state = state_of(self.image, where)
        return () if state is None else state.replicas

    def unfence_one(self) -> None:
        waiting = [each for each in self.machines.values() if each.is_up and not each.is_serving]
        if waiting:
            self.unfence(self.random.choice(waiting))

    def unfence(self, machine: Machine) -> None:
        if not machine.is_up:
            return
        machine.follow(self.image)
        if self.attempt(lambda image: registration.unfence_broker(image, machine.id, machine.epoch)):
            machine.is_serving = True
            machine.follow(self.image)

    def fail_directory(self) -> None:
        machine = self._pick(is_up=True)
        if machine is None or len(machine.directories) < 2 or machine.failed or not self._may_trouble():
            return
        machine.failed.add(self.random.choice(machine.directories))
        self.note(f"a directory of {machine.id} fails")
        self._report_failed(machine)

    def _pick(self, *, is_up: bool) -> Machine | None:
        found = [machine for machine in self.machines.values() if machine.is_up == is_up]
        return self.random.choice(found) if found else None

    def _new_id(self) -> bytes:
        return self.random.randbytes(16)

    # What operators and controllers ask for

    def create_topic(self) -> None:
        name = f"t{self.random.randrange(3)}"
        factor = min(len(self.machines), self.random.choice((1, 2, 3, 3)))
        configs = {"min.insync.replicas": str(min(factor, self.random.choice((1, 2, 2, 2, 3))))}
        if self.has_operators and self.random.random() < 0.1:
            configs["unclean.leader.election.enable"] = "true"
        wanted = topics.NewTopic(name, self.random.randint(1, 2), factor, configs=configs)
        self.attempt(lambda image: topics.create_topic(image, wanted, CONFIG, self.random))

    def recreate(self) -> None:
        found = list(self.image.topics())
        if found and self.random.random() < 0.3:
            self.append(topics.delete_topic(self.image, self.random.choice(found).id))
        elif len(found) < 3:
            self.create_topic()

    def prefer(self) -> None:
        self.append(elections.restore_preferred_leaders(self.image, self.random.choice((1, 100))))

    def finish(self) -> None:
        self.append(reassignments.finish_reassignments(self.image))

    def reassign(self) -> None:
        where = self._pick_partition()
        if where is None or not self.image.brokers:
            return
        state = self.image.partition(where.topic, where.partition)
        assert state is not None
        target: list[int] | None = None
        if not (state.adding or state.removing) or self.random.random() < 0.5:
            brokers = sorted(self.image.brokers)
            target = self.random.sample(brokers, self.random.randint(1, min(3, len(brokers))))
        self.attempt(lambda image: reassignments.alter_reassignments(image, [(where, target)]))

    def configure(self) -> None:
        where = self._pick_partition()
        if where is not None:
            value = self.random.choice((None, "1", "2", "3"))
            setting = SetConfig(ConfigResource.TOPIC, where.topic, "min.insync.replicas", value)
            self.append(Decision([setting], None))

    def unregister(self) -> None:
        machine = self._pick(is_up=False)
        if machine is not None and self.random.random() < 0.2:
            self.attempt(lambda image: registration.unregister_broker(image, machine.id))

    def allow_unclean(self) -> None:
        """Ask for an unclean election, once, in a partition that nobody leads. If there is none, ask in vain."""
        leaderless = [where for where in partitions_of(self.image) if self._leader(where) == NO_LEADER]
        if not leaderless:
            self.attempt(lambda image: elections.elect_leaders(image, elections.ElectionType.UNCLEAN, None))
        elif self.random.random() < 0.3:
            topic_id, index = self.random.choice(leaderless)
            where = TopicPartition(self.image.topic_names[topic_id], index)
            self.unclean_requested = True
            self.attempt(lambda image: elections.elect_leaders(image, elections.ElectionType.UNCLEAN, [where]))
            self.unclean_requested = False

    def _leader(self, where: Where) -> int:
        state = state_of(self.image, where)
        return NO_LEADER if state is None else state.leader

    def _pick_partition(self) -> TopicPartition | None:
        found = partitions_of(self.image)
        if not found:
            return None
        topic_id, index = self.random.choice(found)
        return TopicPartition(self.image.topic_names[topic_id], index)

    # The end

    def heal(self) -> None:
        """All machines run again, and copy everything. Nothing that is still promised may be missing."""
        self.note("heal")
        for machine in self.machines.values():
            broker = self.image.broker(machine.id)
            if not machine.is_up or machine.failed:
                if broker is not None and not broker.fenced:
                    self.append(Decision([FenceBroker(broker.id, broker.epoch)], None))
                if machine.is_up:
                    machine.forget()
                    machine.stopped_at = None
                machine.failed.clear()
                self.start(machine)
        for _ in range(2):
            for machine in self.machines.values():
                broker = self.image.broker(machine.id)
                if broker is None or broker.fenced or not machine.is_serving:
                    machine.is_serving = False
                    if broker is not None and broker.fenced and broker.epoch == machine.epoch:
                        self.unfence(machine)
                    else:
                        self._register(machine, None, machine.epoch)
                        self.unfence(machine)
        for _ in range(3):
            for machine in self.machines.values():
                machine.follow(self.image)
            self.leaders.copy_everything()
        self.problems += check_snapshot(self.image)
        for where in partitions_of(self.image):
            state = state_of(self.image, where)
            assert state is not None
            self.check_candidates(where)
            if state.leader == NO_LEADER and not self.is_lossy and not self.has_operators:
                self.problems.append(f"OFFLINE: nobody leads {where[1]} although nothing was lost: {state}")

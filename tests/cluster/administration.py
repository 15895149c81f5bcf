"""An administrator of a cluster that is in trouble, and what must be true when the trouble is over.

A worker beside the load asks brokers, chosen at random whatever their state, to reassign partitions, to cancel that, to
move replicas between data directories, to throttle all that, to elect preferred leaders, to change settings, and to
create, extend, empty and delete topics of its own (`side_topics`).

In the end everything settles: reassignments and moves end by themselves, limits can be removed, every replica is in
sync, every broker has the settings that were acknowledged, and all replicas of a partition hold the same bytes.
"""

from collections.abc import Callable
from random import Random

from ottla.errors import ErrorCode
from ottla.records import batch
from ottla.topic_partition import TopicPartition
from ottla.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.cluster.admin_requests import BROKER, TIMEOUT_MS, TOPIC, ReplicaLog, Requests, Resource
from tests.cluster.load import Load, Worker, wait_for
from tests.cluster.processes import OttlaNodes
from tests.cluster.side_topics import SideTopics
from tests.samples import FULL

PAUSE_S = 0.2 if FULL else 0.5
INTERNAL = {"__consumer_offsets": 3, "__transaction_state": 3}
REPLICAS = 3
PREFERRED = 0
THROTTLED = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
RATES = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)
NO_LIMIT = ("", None, "9223372036854775807")
RATE = str(200_000)


class Administrator(Worker):
    """Administrates the topics of a load while the cluster is in trouble."""

    def __init__(self, nodes: OttlaNodes, load: Load, suffix: str, random: Random) -> None:
        super().__init__(f"administrator-{suffix}")
        self.requests = Requests(nodes, random)
        self.failures = self.requests.failures
        self.told: list[str] = []
        self._nodes = nodes
        self._random = random
        internal = [TopicPartition(name, index) for name, count in INTERNAL.items() for index in range(count)]
        self._loaded = [*load.ledger, *load.transfers]
        self._movable = [*self._loaded, *internal]
        self._settings: dict[tuple[str, str], str | None] = {}
        """What each setting of a loaded topic was set to last."""
        self._unclear: set[tuple[str, str]] = set()
        """Settings of loaded topics of which nobody knows whether a change was made."""
        self._side = SideTopics(self.requests, nodes.bootstrap, suffix, random)
        self._deck: list[Callable[[], None]] = []

    def work(self) -> None:
        # Brokers create internal topics when the first clients of the load ask for their coordinators.
        self._await("there are internal topics", lambda: all(map(self.requests.find_partitions, INTERNAL)))
        while not self.is_stopping:
            if not self._deck:
                self._deck = self.list_actions()
                self._random.shuffle(self._deck)
            self._deck.pop()()
            self._side.write_compacted()
            self._stopping.wait(self._random.uniform(0, 2 * PAUSE_S))

    def list_actions(self) -> list[Callable[[], None]]:
        return [
            self._reassign,
            self._reassign,
            self._reassign_and_cancel,
            self._cancel,
            self._elect,
            self._throttle,
            self._remove_limits,
            self._move_directories,
            self._move_directories,
            self._change_settings,
            *self._side.list_actions(),
        ]

    def tell(self, what: str) -> None:
        self.told.append(what)

    def list_topics(self) -> list[str]:
        """Topics of the administrator, to be deleted after a round."""
        return self._side.list_topics()

    def describe(self) -> str:
        return f"{len(self.told)} administrative actions, {dict(sorted(self.requests.counts.items()))}"

    # What an administrator does

    def _choose(self, count_max: int = 4) -> list[TopicPartition]:
        return self._random.sample(self._movable, self._random.randint(1, count_max))

    def _reassign(self) -> None:
        brokers = list(self._nodes.brokers)
        targets = {}
        for where in self._choose():
            # Never below min.insync.replicas.
            targets[where] = self._random.sample(brokers, min(self._random.choice((2, 3, 3, 4)), len(brokers)))
        self.tell(f"reassign {targets}")
        self.requests.reassign(targets)

    def _reassign_and_cancel(self) -> None:
        self._reassign()
        self._stopping.wait(self._random.choice((0, 0.05, 0.5)))
        self._cancel()

    def _cancel(self) -> None:
        under_way = self.requests.list_reassignments()
        wanted = under_way or self._choose(1)
        self.tell(f"cancel {wanted}")
        self.requests.reassign(dict.fromkeys(wanted))

    def _throttle(self) -> None:
        topic = self._random.choice(self._loaded).topic
        broker = self._random.choice(list(self._nodes.brokers))
        self.tell(f"throttle {topic} and broker {broker}")
        self.requests.change_settings((TOPIC, topic), dict.fromkeys(THROTTLED, "*"))
        self.requests.change_settings((BROKER, str(broker)), dict.fromkeys(RATES, RATE))

    def _list_limits(self) -> list[tuple[Resource, tuple[str, ...]]]:
        """Everything that `_throttle` can have set."""
        topics = sorted({where.topic for where in self._loaded})
        limited: list[tuple[Resource, tuple[str, ...]]] = [((TOPIC, topic), THROTTLED) for topic in topics]
        return [*limited, *(((BROKER, str(broker)), RATES) for broker in self._nodes.brokers)]

    def _remove_limits(self) -> None:
        self.tell("remove limits")
        for resource, names in self._list_limits():
            self.requests.change_settings(resource, dict.fromkeys(names))

    def _move_directories(self) -> None:
        """Several replicas in one request, so that moves end at the same moment."""
        broker = self._random.choice(list(self._nodes.brokers.values()))
        found = self.requests.describe_directories(broker)
        if not found or len(found) < 2:
            return
        homes = {where: path for path, held in found.items() for where, is_copy in held.items() if not is_copy}
        chosen = self._random.sample(sorted(homes), min(self._random.randint(1, 6), len(homes)))
        directories: dict[str, AlterReplicaLogDir] = {}
        for where in chosen:
            path = self._random.choice([each for each in found if each != homes[where]])
            directory = directories.setdefault(path, AlterReplicaLogDir(path=path))
            directory.topics.append(AlterReplicaLogDirTopic(name=where.topic, partitions=[where.partition]))
        self.tell(f"move at {broker.name} {chosen}")
        answer = self.requests.ask(AlterReplicaLogDirsRequest(dirs=list(directories.values())), broker)
        gone = (ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        for topic in answer.results if answer is not None else ():
            for each in topic.partitions:
                what = f"move {topic.topic_name}-{each.partition_index} at {broker.name}"
                self.requests.judge(what, each.error_code, gone)

    def _elect(self) -> None:
        chosen = None
        if self._random.random() < 0.5:
            chosen = [TopicPartitions(topic=each.topic, partitions=[each.partition]) for each in self._choose()]
        self.tell(f"elect {chosen}")
        request = ElectLeadersRequest(election_type=PREFERRED, topic_partitions=chosen, timeout_ms=TIMEOUT_MS)
        answer = self.requests.ask(request)
        if answer is None:
            return
        documented = (ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
        self.requests.judge("election", answer.error_code)
        for topic in answer.replica_election_results:
            for each in topic.partition_result:
                self.requests.judge(f"election {topic.topic}-{each.partition_id}", each.error_code, documented)

    def _change_settings(self) -> None:
        topic = self._random.choice(self._loaded).topic
        name, value = self._random.choice(
            (
                ("retention.ms", "86400000"),
                ("retention.ms", "-1"),
                ("retention.ms", None),
                ("segment.ms", "1000"),
                ("segment.ms", None),
                ("segment.bytes", str(1 << 20)),
                ("flush.messages", "1"),
                ("flush.messages", None),
                ("max.message.bytes", "900000"),
            )
        )
        self.tell(f"set {name}={value} of {topic}")
        done = self.requests.change_settings((TOPIC, topic), {name: value})
        if done is None:
            self._unclear.add((topic, name))  # the change may even be made later
        elif done:
            self._settings[topic, name] = value

    # When the trouble is over

    def settle(self) -> None:
        """Wait until everything that was begun has ended, and bring every partition back to three replicas."""
        self.stop()
        self.join()
        self._await("limits are removed", self._try_to_remove_limits)
        self._await("reassignments end", self._is_nothing_reassigned)
        self._await("partitions have three replicas", self._try_to_restore_replicas)
        self._await("moves between directories end", self._is_nothing_moved)
        self._side.finish()
        for topic in sorted({where.topic for where in self._movable}) + self._side.list_topics():
            self._nodes.wait_in_sync(topic)
        self._await("every broker has the settings", self._are_settings_known)

    def check_replicas(self) -> None:
        """Every replica holds the same bytes, when nobody writes any more."""
        for topic in sorted({where.topic for where in self._loaded}):
            leaders: dict[TopicPartition, ReplicaLog] = {}
            for where, broker, log in self.requests.read_replicas(topic):
                leader = leaders.setdefault(where, log)
                differing = sorted(set(leader.batches.items()) ^ set(log.batches.items()))
                assert not differing, (where, broker, [at for at, _ in differing[:5]], len(differing))
        self._side.check()

    def describe_batches(self, topic: str) -> list[str]:
        """The batches of a topic's leaders in a line each, to explain what the checker has found."""
        return [
            f"{where} {header.base_offset}-{header.last_offset} leader epoch {header.leader_epoch} "
            f"producer {header.producer_id}:{header.producer_epoch} {describe_content(header, data)}"
            for where, broker, log in self.requests.read_replicas(topic)
            if broker == self._nodes.find_partitions(topic)[where.partition][0]
            for data in log.batches.values()
            for header in [batch.read_header(data)]
        ]

    def _try_to_remove_limits(self) -> bool:
        removed = [self.requests.change_settings(each, dict.fromkeys(names)) for each, names in self._list_limits()]
        return all(removed) and all(
            self.requests.describe_settings(broker, resource).get(name) in NO_LIMIT
            for broker in self._nodes.brokers.values()
            for resource, names in self._list_limits()
            if resource in ((TOPIC, resource[1]), (BROKER, str(broker.id)))
            for name in names
        )

    def _try_to_restore_replicas(self) -> bool:
        targets = {}
        for topic in {where.topic for where in self._movable}:
            for index, (_, replicas) in self.requests.find_partitions(topic).items():
                if len(replicas) != REPLICAS:
                    targets[TopicPartition(topic, index)] = self._random.sample(list(self._nodes.brokers), REPLICAS)
        if targets:
            self.requests.reassign(targets)
        return not targets and self._is_nothing_reassigned()

    def _is_nothing_reassigned(self) -> bool:
        return all(self.requests.list_reassignments(broker) == [] for broker in self._nodes.brokers.values())

    def _is_nothing_moved(self) -> bool:
        for broker in self._nodes.brokers.values():
            found = self.requests.describe_directories(broker)
            if found is None or any(is_copy for held in found.values() for is_copy in held.values()):
                return False
        return True

    def _are_settings_known(self) -> bool:
        for broker in self._nodes.brokers.values():
            for topic in {topic for topic, _ in self._settings}:
                found = self.requests.describe_settings(broker, (TOPIC, topic))
                for (changed, name), value in self._settings.items():
                    is_clear = (changed, name) not in self._unclear
                    if changed == topic and is_clear and value is not None and found.get(name) != value:
                        return False
        return True

    def _await(self, what: str, is_so: Callable[[], bool]) -> None:
        def describe() -> str:
            return f"{self.told[-10:]}, {self.failures[:5]}, {self._settings}, {self._nodes.read_logs()}"

        wait_for(is_so, what, describe)


def describe_content(header: batch.BatchHeader, data: bytes) -> str:
    """What tells a batch from others of its producer: the sequence number, or which marker it is, and whose."""
    if not header.is_control:
        return f"sequence {header.base_sequence}"
    marker = batch.control_type(data)
    return f"{'commit' if marker.type == batch.COMMIT else 'abort'} of coordinator epoch {marker.coordinator_epoch}"

"""`LocalCluster`, several brokers that a test can kill, pause, restart and cut off, one by one.

The brokers run in threads of the test's process, or in child processes. Their metadata is in a store in memory of the
test's process, which takes ZooKeeper's place and behaves like it: a broker that does not answer for the session
time-out loses its session.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.broker.broker import Broker
from ottla.cluster.memory_store import MemoryStore
from ottla.config import BrokerConfig
from ottla.testing.cuts import BrokerNetwork
from ottla.testing.launch import PATIENCE_S, ClusterMember, FaultOrder, Host
from ottla.testing.local import DIRECTORY_PREFIX, LocalBroker, Snapshot, settings_text
from ottla.testing.process import BrokerProcess
from ottla.testing.store_server import StoreServer
from ottla.testing.thread import BrokerThread
from ottla.testing.topics import create_topic

if TYPE_CHECKING:
    from ottla.testing.security import TestSecurity

T = TypeVar("T")

INTERNAL_PARTITIONS = 5
"""Partitions of each internal topic. A real cluster has 50, which take longer to create than most tests run."""

REPLICATION_FACTOR_MAX = 3
POLL_S = 0.005


class ClusterBroker(LocalBroker):
    """One broker of a cluster. It has everything that a broker of `ottla.testing.broker` has, and can be paused."""

    def __init__(
        self,
        id: int,
        settings: Mapping[str, Any],
        store: MemoryStore,
        network: BrokerNetwork,
        server: StoreServer | None = None,
        security: "TestSecurity | None" = None,
    ) -> None:
        """`server`: serves the store to a broker in a child process. None: the broker runs in a thread."""
        super().__init__({"node_id": id, **settings}, process=server is not None, snapshot=None, security=security)
        self.id = id
        self.is_paused = False
        self._store = store
        self._network = network
        self._server = server

    def __repr__(self) -> str:
        state = "paused" if self.is_paused else "running" if self.running else "down"
        return f"<broker {self.id} at {self.bootstrap}, {state}>"

    @property
    def store_name(self) -> str:
        """The name under which the store in memory knows this broker."""
        return f"broker-{self.id}"

    def restart(self) -> None:
        super().restart()
        self._network.note_port(self.id, self.port)

    def stop(self) -> None:
        if self.is_paused:
            self.resume()  # a process that is stopped by SIGSTOP takes no command
        super().stop()

    def kill(self) -> None:
        super().kill()
        self.is_paused = False

    def hold_process(self) -> None:
        """Holds the process of the broker, if it has one, until it is killed."""
        if isinstance(self._host, BrokerProcess):
            self._host.pause()

    def advance(self, **time: float) -> None:
        """Not possible for one broker alone: sessions with the store would expire. Use `LocalCluster.advance`."""
        raise ValueError("the clock of one broker cannot be moved alone; use cluster.advance(...)")

    def advance_with_others(self, **time: float) -> None:
        super().advance(**time)

    def create_topic(self, name: str, partitions: int = 1, **configs: Any) -> None:
        self.require_awake()
        super().create_topic(name, partitions, **configs)

    def snapshot(self, directory: "os.PathLike[str] | str | None" = None) -> Snapshot:
        self.require_awake()
        return super().snapshot(directory)

    def clear_faults(self) -> None:
        self.require_awake()
        super().clear_faults()

    def pause(self) -> None:
        """Holds the broker as SIGSTOP does: it does nothing more, and its connections stay open.

        Until `resume` it takes no orders either: RuntimeError.
        """
        self._require_host().pause()
        self.is_paused = True

    def resume(self) -> None:
        """Lets a paused broker go on."""
        host = self._require_host()
        host.resume()
        self.is_paused = False
        self.follow_network()

    def inspect(self, function: Callable[[Broker], T]) -> T:
        """Calls a function with the broker object, on the broker's own thread. Returns the result.

        ValueError for a broker in a child process: its objects are not here.
        """
        self.require_awake()
        host = self._require_host()
        if not isinstance(host, BrokerThread):
            raise ValueError("a broker in a child process cannot be inspected; use a cluster without process=True")
        return host.call(function)

    def ask(self, question: str, *arguments: Any) -> Any:
        """Asks the broker one of the questions of questions.py."""
        self.require_awake()
        return self._require_host().ask(question, *arguments)

    def require_awake(self) -> None:
        """RuntimeError if the broker is paused: whatever asks it would wait for `resume`."""
        if self.is_paused:
            raise RuntimeError(f"broker {self.id} is paused, and takes no orders: resume() it first")

    def find_obstacle(self) -> str | None:
        """Why the broker cannot change the metadata now, or learn of a change; None if it can."""
        if not self.running:
            return "is down"
        if self.is_paused:
            return "is paused"
        return None if self._store.is_reachable(self.store_name) else "cannot reach the store"

    def follow_network(self) -> None:
        """Tells a broker in a child process which connections are cut. A paused one learns it when it goes on."""
        if isinstance(self._host, BrokerProcess) and not self.is_paused:
            self._host.set_network(self._network.describe())

    def _start(self) -> Host:
        launch = self._launch()
        if self._server is not None:
            member = ClusterMember(self.id, self.store_name, self._server.path, self._network.describe())
            return BrokerProcess(launch._replace(member=member))
        return BrokerThread(launch, store=self._store.client(self.store_name), connect=self._network.connector(self.id))

    def _add_fault(self, order: FaultOrder) -> None:
        self.require_awake()
        super()._add_fault(order)

    def _require_host(self) -> BrokerThread | BrokerProcess:
        if not isinstance(self._host, BrokerThread | BrokerProcess):
            raise RuntimeError(f"broker {self.id} is down: restart() it first")
        return self._host


class LocalCluster:
    """A cluster for tests, made by `ottla.testing.cluster`. `brokers[0]` is the broker with the id 1."""

    def __init__(
        self,
        brokers: int,
        settings: Mapping[str, Any],
        *,
        process: bool = False,
        security: "TestSecurity | None" = None,
    ) -> None:
        self.brokers: list[ClusterBroker] = []
        if not isinstance(brokers, int) or brokers < 1:
            raise ValueError(f"brokers: {brokers!r} is not a whole number of at least 1")
        text = {
            "default.replication.factor": str(min(brokers, REPLICATION_FACTOR_MAX)),
            "offsets.topic.num.partitions": str(INTERNAL_PARTITIONS),
            "transaction.state.log.num.partitions": str(INTERNAL_PARTITIONS),
            **settings_text(settings),
        }
        if brokers < REPLICATION_FACTOR_MAX:  # internal topics have three replicas, and wait until as many brokers run
            for name in ("offsets.topic.replication.factor", "transaction.state.log.replication.factor"):
                text.setdefault(name, str(brokers))
            text.setdefault("transaction.state.log.min.isr", "1")
        config = BrokerConfig.of(text)
        self.store = MemoryStore(config.zookeeper_session_timeout_ms / 1000)
        self._network = BrokerNetwork()
        self._is_closed = False
        given = dict(text)
        self._directory = tempfile.mkdtemp(prefix=DIRECTORY_PREFIX) if process else None
        self._server = StoreServer(self.store, os.path.join(self._directory, "store")) if self._directory else None
        self.brokers = [
            ClusterBroker(each + 1, given, self.store, self._network, self._server, security) for each in range(brokers)
        ]

    def __repr__(self) -> str:
        return f"<cluster of {', '.join(map(repr, self.brokers))}>"

    @property
    def bootstrap(self) -> str:
        """The value of a client's bootstrap.servers: the addresses of all brokers."""
        return ",".join(broker.bootstrap for broker in self.brokers)

    @property
    def client_settings(self) -> dict[str, str]:
        """bootstrap.servers and the security of a client that may do everything, with librdkafka's names."""
        return {**self.brokers[0].client_settings, "bootstrap.servers": self.bootstrap}

    @property
    def java_settings(self) -> dict[str, str]:
        """The same with the names of the Java client."""
        return {**self.brokers[0].java_settings, "bootstrap.servers": self.bootstrap}

    def create_user(self, name: str, password: str | None = None) -> dict[str, str]:
        """A user who may do what ACLs say, and the settings of a client of this user."""
        return {**self.brokers[0].create_user(name, password), "bootstrap.servers": self.bootstrap}

    def start(self) -> None:
        """Starts every broker that is down. When this returns, every broker knows all of them. RuntimeError after
        `close`."""
        if self._is_closed:
            raise RuntimeError("the cluster is closed: start another one")
        down = [broker for broker in self.brokers if not broker.running]
        if self._server is not None:  # processes start beside each other
            with ThreadPoolExecutor(len(down) or 1) as starting:
                list(starting.map(ClusterBroker.restart, down))
        else:
            for broker in down:
                broker.restart()
        wait_until(lambda: all(broker.ask("count_alive") == len(self.brokers) for broker in self.brokers))

    def close(self) -> None:
        """Ends all brokers and removes their directories. They cannot be started again."""
        if self._is_closed:
            return
        self._is_closed = True
        # No broker may warn that another one is gone: pytest would show it with the failure of the test.
        self._network.cut_all()
        for broker in self.brokers:
            broker.hold_process()
        for broker in self.brokers:
            broker.close()
        if self._server is not None and self._directory is not None:
            self._server.close()
            shutil.rmtree(self._directory, ignore_errors=True)

    def create_topic(self, name: str, partitions: int = 1, replication_factor: int = -1, **configs: Any) -> None:
        """Creates a topic. All brokers that run know it when this returns, and have created their replicas.

        Those that are paused, or cut off from the store, learn it later. KafkaError if it is refused, RuntimeError if
        no broker can do it. Without `replication_factor`, default.replication.factor counts.
        """
        obstacles = {broker: broker.find_obstacle() for broker in self.brokers}
        able = [broker for broker, obstacle in obstacles.items() if obstacle is None]
        if not able:
            reasons = ", ".join(f"broker {broker.id} {obstacle}" for broker, obstacle in obstacles.items())
            raise RuntimeError(f"no broker can create the topic {name}: {reasons}")
        create_topic(able[0].client_settings, name, partitions, settings_text(configs), replication_factor)
        wait_until(lambda: all(broker.ask("has_created", name) for broker in able))

    def advance(self, **time: float) -> None:
        """Moves the clocks of all brokers forward, as `LocalBroker.advance` does. Sessions do not expire by it."""
        for broker in self.brokers:
            broker.require_awake()
        self.store.stop()
        try:
            for broker in self.brokers:
                broker.advance_with_others(**time)
        finally:
            self.store.start()

    # Faults

    def cut(self, source: ClusterBroker, target: ClusterBroker, *, both: bool = True) -> None:
        """Lets nothing through from one broker to another, and back unless `both` is False, until `heal`.

        ValueError if one of them is no broker of this cluster.
        """
        self._require_own(source, target)
        self._network.cut(source.id, target.id)
        if both:
            self._network.cut(target.id, source.id)
        self._tell_network()

    def cut_from_store(self, broker: ClusterBroker) -> None:
        """Cuts a broker off from the store until `heal`. Its session expires after zookeeper.session.timeout.ms.

        ValueError if it is no broker of this cluster.
        """
        self._require_own(broker)
        self.store.cut(broker.store_name)

    def stop_store(self) -> None:
        """The store is away for all brokers until `heal`. No session expires meanwhile."""
        self.store.stop()

    def heal(self) -> None:
        """Ends every cut, and brings the store back."""
        self._network.heal()
        self._tell_network()
        for broker in self.brokers:
            self.store.heal(broker.store_name)
        self.store.start()

    def _require_own(self, *brokers: ClusterBroker) -> None:
        for broker in brokers:
            if broker not in self.brokers:
                raise ValueError(f"{broker!r} is no broker of this cluster: pass cluster.brokers[0], not its id")

    def _tell_network(self) -> None:
        for broker in self.brokers:
            broker.follow_network()


def wait_until(is_true: Callable[[], bool]) -> None:
    """Waits for a condition. TimeoutError after PATIENCE_S."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the condition did not become true in {PATIENCE_S:.0f} s")
        time.sleep(POLL_S)

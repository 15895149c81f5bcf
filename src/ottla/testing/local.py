"""`LocalBroker`, the object that a test uses to stop, kill and restart its broker, inject faults and move its clock."""

import os
import shutil
import socket
import tempfile
import weakref
from collections.abc import Iterable, Mapping
from datetime import timedelta
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from ottla.config import BrokerConfig, Listener
from ottla.errors import ErrorCode
from ottla.system.clock import WallClock
from ottla.testing.launch import FaultOrder, Host, Launch
from ottla.wire import frames

if TYPE_CHECKING:
    from ottla.testing.security import TestSecurity

DEFAULTS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "connections.max.idle.ms": "-1",  # moving the clock must not disconnect idle clients
    "group.initial.rebalance.delay.ms": "0",  # a test does not want to wait for more members
}
DIRECTORY_PREFIX = "ottla-"
ADMIN = "admin"
"""The user of clients that may do everything."""


class Snapshot:
    """A copy of a broker's data, from which other brokers can start. A snapshot in a temporary directory is removed
    when nothing refers to it any more."""

    def __init__(self, directory: "os.PathLike[str] | str", offset_ms: int = 0) -> None:
        self.directory = os.fspath(directory)
        self.offset_ms = offset_ms
        """How far the clock of its broker was ahead. A broker that starts from the snapshot has the same offset."""


class LocalBroker:
    """A broker for tests, made by `ottla.testing.broker`. `bootstrap` is the value of a client's bootstrap.servers."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        process: bool,
        snapshot: "Snapshot | os.PathLike[str] | str | None",
        security: "TestSecurity | None" = None,
    ) -> None:
        self.security = security
        """Certificates and users, if the broker was asked for `security` or `acls`."""
        secured = security.make_broker_settings() if security is not None else {}
        self._config = BrokerConfig.of({**DEFAULTS, **secured, **settings_text(settings)})
        if self._config.log_dirs:
            raise ValueError("log.dirs: a test's broker has a fresh directory; give it data with snapshot=")
        self._listeners = self._config.endpoints.bound
        self._process = process
        self._host: Host | None = None
        self._reserved: list[socket.socket] = []
        self._faults: list[FaultOrder] = []
        self._offset_ms = 0
        self._is_closed = False
        self.directory = tempfile.mkdtemp(prefix=DIRECTORY_PREFIX)
        if snapshot is not None:
            self._offset_ms = self._restore(snapshot if isinstance(snapshot, Snapshot) else Snapshot(snapshot))

    def __repr__(self) -> str:
        return f"<broker at {self.bootstrap}, {'running' if self.running else 'down'}>"

    # Addresses

    @property
    def host(self) -> str:
        return self._listeners[0].host or "127.0.0.1"

    @property
    def port(self) -> int:
        """The port of the first listener. It stays the same when the broker restarts."""
        return self._listeners[0].port

    @property
    def bootstrap(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def client_settings(self) -> dict[str, str]:
        """bootstrap.servers and the security of a client that may do everything, with librdkafka's names."""
        return self.find_client_settings()

    @property
    def java_settings(self) -> dict[str, str]:
        """The same with the names of the Java client."""
        found = self.security.make_java_settings() if self.security is not None else {}
        return {"bootstrap.servers": self.bootstrap, **found}

    def find_client_settings(self, user: str = ADMIN) -> dict[str, str]:
        """Settings of a client of this user, whom `create_user` has created."""
        found = self.security.make_client_settings(user) if self.security is not None else {}
        return {"bootstrap.servers": self.bootstrap, **found}

    def create_user(self, name: str, password: str | None = None) -> dict[str, str]:
        """A user who may do what ACLs say, and the settings of a client of this user."""
        from ottla.testing.users import create_user

        if self.security is None:
            raise ValueError("a broker without security knows no users; start it with security='sasl_ssl'")
        create_user(self.client_settings, self.security, name, password)
        return self.find_client_settings(name)

    @property
    def metrics_port(self) -> int:
        """The port of the metrics, if the setting `metrics_port` was given; with 0 a free port is chosen at each
        start."""
        if self._host is None:
            raise RuntimeError("the broker is down: restart() it first")
        return self._host.ports["metrics"]

    @property
    def running(self) -> bool:
        return self._host is not None

    # Starting and stopping

    def restart(self) -> None:
        """Stops the broker if it runs, then starts it with the same port, directory and clock. Faults from before the
        stop are gone; those added while the broker was down are active. RuntimeError after `close`."""
        if self._is_closed:
            raise RuntimeError("the broker is closed, and its directory removed: start another one")
        self.stop()
        self._release_ports()
        try:
            self._host = self._start()
        except BaseException:
            self._reserve_ports()
            raise
        self._faults.clear()
        ports = self._host.ports
        self._listeners = tuple(listener._replace(port=ports[listener.name]) for listener in self._listeners)

    def stop(self) -> None:
        """Stops the broker as SIGTERM does: requests are finished, data is flushed, files are closed."""
        if (host := self._take_host()) is not None:
            host.stop()
            self._reserve_ports()

    def kill(self) -> None:
        """Ends the broker as kill -9 does: connections break, nothing is flushed, and the next start runs recovery."""
        if (host := self._take_host()) is not None:
            host.kill()
            self._reserve_ports()

    def close(self) -> None:
        """Ends the broker and removes its directory. It cannot be restarted."""
        self._is_closed = True
        try:
            self.kill()
        finally:
            self._release_ports()
            shutil.rmtree(self.directory, ignore_errors=True)

    # Data

    def create_topic(self, name: str, partitions: int = 1, **configs: Any) -> None:
        """Creates a topic. Clients can use it when this returns. KafkaError if the broker refuses it."""
        from ottla.testing.topics import create_topic

        create_topic(self.client_settings, name, partitions, settings_text(configs))

    def snapshot(self, directory: "os.PathLike[str] | str | None" = None) -> Snapshot:
        """Copies the broker's data, with all acknowledged records. A copy in a given `directory`, which must not exist,
        is kept; otherwise it is removed with the Snapshot."""
        parent = None if directory is not None else tempfile.mkdtemp(prefix=DIRECTORY_PREFIX)
        target = os.path.join(parent, "data") if parent is not None else os.fspath(directory or "")
        if self._host is not None:
            self._host.copy_data(os.path.abspath(target))
        else:
            shutil.copytree(self.directory, target)
        snapshot = Snapshot(target, self._offset_ms)
        if parent is not None:
            weakref.finalize(snapshot, shutil.rmtree, parent, ignore_errors=True)
        return snapshot

    # Faults

    def fail(self, api: str, error: str | ErrorCode, times: int | None = 1, *, answer_only: bool = False) -> None:
        """Answers the next `times` requests of `api` with `error`; None: all of them, until `clear_faults`.

        With `answer_only` the broker handles the request as usual and then answers with the error.
        """
        code = error_code(error)
        self._add_fault(FaultOrder(api, error=int(code), answer_only=answer_only, times=times))

    def delay(self, api: str, seconds: float, times: int | None = 1) -> None:
        """Delays the next requests of `api`. The delay is measured by the broker's clock, so `advance` shortens it."""
        self._add_fault(FaultOrder(api, delay_s=seconds, times=times))

    def drop(self, api: str, times: int | None = 1, *, answer_only: bool = False) -> None:
        """Closes the connection instead of handling the next requests of `api`, or with `answer_only` instead of
        answering them."""
        self._add_fault(FaultOrder(api, drop=True, answer_only=answer_only, times=times))

    def clear_faults(self) -> None:
        self._faults.clear()
        if self._host is not None:
            self._host.clear_faults()

    # Time

    @property
    def now_ms(self) -> int:
        """The time of the broker's clock."""
        return WallClock().now_ms() + self._offset_ms

    def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0, ms: float = 0
    ) -> None:
        """Moves the clock of the broker forward, not that of its clients. Returns when the work that became due is
        done."""
        time = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=ms)
        passed_ms = time // timedelta(milliseconds=1)
        if passed_ms < 0:
            raise ValueError(f"time cannot go back by {-time}")
        if self._host is not None:
            self._host.advance(passed_ms)
        self._offset_ms += passed_ms

    # Internals

    def _launch(self) -> Launch:
        settings = {**self._config.given, "listeners": ",".join(map(_find_address, self._listeners))}
        return Launch(self.directory, settings, self._offset_ms, tuple(self._faults))

    def _start(self) -> Host:
        if self._process:
            from ottla.testing.process import BrokerProcess

            return BrokerProcess(self._launch())
        from ottla.testing.thread import BrokerThread

        return BrokerThread(self._launch())

    def _take_host(self) -> Host | None:
        host, self._host = self._host, None
        return host

    def _add_fault(self, order: FaultOrder) -> None:
        check_api(order.api)
        if order.times is not None and order.times < 1:
            raise ValueError(f"times: {order.times} is not at least 1; None means until clear_faults")
        if self._host is not None:
            self._host.add_fault(order)
        else:
            self._faults.append(order)

    def _restore(self, snapshot: Snapshot) -> int:
        try:
            shutil.copytree(snapshot.directory, self.directory, dirs_exist_ok=True)
        except BaseException:
            shutil.rmtree(self.directory, ignore_errors=True)
            raise
        return snapshot.offset_ms

    def _reserve_ports(self) -> None:
        """Binds the ports of a stopped broker, so that they are free when it restarts. Clients that connect are
        refused.

        Otherwise the system could use the port as the local port of any outgoing connection. A client that tries to
        reach this broker could even connect to itself.
        """
        for listener in self._listeners:
            if listener.port:
                reserved = socket.socket(socket.AF_INET6 if ":" in listener.host else socket.AF_INET)
                self._reserved.append(reserved)
                reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                reserved.bind((listener.host, listener.port))

    def _release_ports(self) -> None:
        for reserved in self._reserved:
            reserved.close()
        self._reserved.clear()


def settings_text(settings: Mapping[str, Any]) -> dict[str, str]:
    """Converts settings to names and values of a configuration file: `log_flush_interval_ms=5` to
    `log.flush.interval.ms=5`. A name that has dots already stays as it is."""
    return {name if "." in name else name.replace("_", "."): _to_text(value) for name, value in settings.items()}


def _to_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Iterable) and not isinstance(value, str):
        return ",".join(map(_to_text, value))
    return str(value)


def error_code(error: str | ErrorCode) -> ErrorCode:
    if isinstance(error, ErrorCode):
        return error
    if error not in ErrorCode.__members__:
        raise ValueError(f"no error is called {error!r}{_find_nearest(error, ErrorCode.__members__)}")
    return ErrorCode[error]


def check_api(name: str) -> None:
    names = [api.name for api in frames.apis()]
    if name not in names:
        raise ValueError(f"no API is called {name!r}{_find_nearest(name, names)}")


def _find_nearest(name: str, names: Iterable[str]) -> str:
    found = get_close_matches(name, list(names), n=1)
    return f"; did you mean {found[0]}?" if found else ""


def _find_address(listener: Listener) -> str:
    host = f"[{listener.host}]" if ":" in listener.host else listener.host
    return f"{listener.name}://{host}:{listener.port}"

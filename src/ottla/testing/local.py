"""What a test holds: a broker of its own, which it can stop, kill, restart, disturb and take forward in time."""

import os
import shutil
import socket
import tempfile
import weakref
from collections.abc import Iterable, Mapping
from datetime import timedelta
from difflib import get_close_matches
from typing import Any

from ottla.config import BrokerConfig, Listener
from ottla.errors import ErrorCode
from ottla.system.clock import WallClock
from ottla.testing.launch import FaultOrder, Host, Launch
from ottla.wire import frames

DEFAULTS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "connections.max.idle.ms": "-1",  # a clock that jumps must not cut off every client
    "group.initial.rebalance.delay.ms": "0",  # nobody waits for members that do not come
}
DIRECTORY_PREFIX = "ottla-"


class Snapshot:
    """A copy of a broker's data, to start others from. One that a broker made by itself goes when nobody holds it."""

    def __init__(self, directory: "os.PathLike[str] | str", offset_ms: int = 0) -> None:
        self.directory = os.fspath(directory)
        self.offset_ms = offset_ms
        """How far the clock of its broker had been moved; a broker that starts from here goes on from there."""


class LocalBroker:
    """Made by `ottla.testing.broker`. `bootstrap` is what a client is given as bootstrap.servers."""

    def __init__(
        self, settings: Mapping[str, Any], *, process: bool, snapshot: "Snapshot | os.PathLike[str] | str | None"
    ) -> None:
        self._config = BrokerConfig.of({**DEFAULTS, **settings_text(settings)})
        if self._config.log_dirs:
            raise ValueError("log.dirs: a test's broker has a fresh directory; give it data with snapshot=")
        self._listeners = self._config.endpoints.bound
        self._process = process
        self._host: Host | None = None
        self._reserved: list[socket.socket] = []
        self._faults: list[FaultOrder] = []
        self._offset_ms = 0
        self.directory = tempfile.mkdtemp(prefix=DIRECTORY_PREFIX)
        if snapshot is not None:
            self._offset_ms = self._restore(snapshot if isinstance(snapshot, Snapshot) else Snapshot(snapshot))

    # Where it is

    @property
    def host(self) -> str:
        return self._listeners[0].host or "127.0.0.1"

    @property
    def port(self) -> int:
        """The port of the first listener; it stays the same from the first start on."""
        return self._listeners[0].port

    @property
    def bootstrap(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def metrics_port(self) -> int:
        """Where it serves its metrics, if it was given a `metrics_port`; 0 takes a free one at each start."""
        assert self._host is not None, "the broker is down"
        return self._host.ports["metrics"]

    @property
    def running(self) -> bool:
        return self._host is not None

    # Coming and going

    def restart(self) -> None:
        """Stop it if it runs, and start it: same port, directory and time; faults are only those added while down."""
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
        """End it as SIGTERM does: requests are finished, data is flushed and closed."""
        if (host := self._take_host()) is not None:
            host.stop()
            self._reserve_ports()

    def kill(self) -> None:
        """End it as kill -9 does: clients lose their connections, nothing is flushed, the next start recovers."""
        if (host := self._take_host()) is not None:
            host.kill()
            self._reserve_ports()

    def close(self) -> None:
        """End it for good and remove its directory."""
        try:
            self.kill()
        finally:
            self._release_ports()
            shutil.rmtree(self.directory, ignore_errors=True)

    # What it holds

    def create_topic(self, name: str, partitions: int = 1, **configs: Any) -> None:
        """A topic that every client can use when this returns. KafkaError if the broker refuses it."""
        from ottla.testing.topics import create_topic

        create_topic(self.host, self.port, name, partitions, settings_text(configs))

    def snapshot(self, directory: "os.PathLike[str] | str | None" = None) -> Snapshot:
        """Its data at this moment, with every acknowledged record; kept if a new `directory` is named for it."""
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

    # Trouble

    def fail(self, api: str, error: str | ErrorCode, times: int | None = 1, *, answer_only: bool = False) -> None:
        """Answer the next `times` requests of `api` with `error`; None: all of them, until `clear_faults`.

        With `answer_only` the request is handled as ever, and only its answer is wrong.
        """
        code = error_code(error)
        self._add_fault(FaultOrder(api, error=int(code), answer_only=answer_only, times=times))

    def delay(self, api: str, seconds: float, times: int | None = 1) -> None:
        """Handle the next requests of `api` only after this long, by the broker's clock: `advance` shortens it."""
        self._add_fault(FaultOrder(api, delay_s=seconds, times=times))

    def drop(self, api: str, times: int | None = 1, *, answer_only: bool = False) -> None:
        """Close the connection instead of handling the next requests of `api`; or, `answer_only`, after it."""
        self._add_fault(FaultOrder(api, drop=True, answer_only=answer_only, times=times))

    def clear_faults(self) -> None:
        self._faults.clear()
        if self._host is not None:
            self._host.clear_faults()

    # Time

    @property
    def now_ms(self) -> int:
        """What the broker's clock says."""
        return WallClock().now_ms() + self._offset_ms

    def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0, ms: float = 0
    ) -> None:
        """Let time pass for the broker, not for its clients. Returns when all that became due is done."""
        time = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=ms)
        passed_ms = time // timedelta(milliseconds=1)
        if passed_ms < 0:
            raise ValueError(f"time cannot go back by {-time}")
        if self._host is not None:
            self._host.advance(passed_ms)
        self._offset_ms += passed_ms

    # Inside

    def _start(self) -> Host:
        settings = {**self._config.given, "listeners": ",".join(map(_address, self._listeners))}
        launch = Launch(self.directory, settings, self._offset_ms, tuple(self._faults))
        if self._process:
            from ottla.testing.process import BrokerProcess

            return BrokerProcess(launch)
        from ottla.testing.thread import BrokerThread

        return BrokerThread(launch)

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
        """Keep the ports of a broker that is down, so that it finds them free. Nobody listens, so clients are refused.

        Without this the system could give the port to any client that connects somewhere, even to one that is just
        trying to reach this broker: it would then be talking to itself.
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
    """Settings as a configuration file would have them: `log_flush_interval_ms=5` is `log.flush.interval.ms=5`."""
    return {name.replace("_", "."): _text(value) for name, value in settings.items()}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Iterable) and not isinstance(value, str):
        return ",".join(map(_text, value))
    return str(value)


def error_code(error: str | ErrorCode) -> ErrorCode:
    if isinstance(error, ErrorCode):
        return error
    if error not in ErrorCode.__members__:
        raise ValueError(f"no error is called {error!r}{_nearest(error, ErrorCode.__members__)}")
    return ErrorCode[error]


def check_api(name: str) -> None:
    names = [api.name for api in frames.apis()]
    if name not in names:
        raise ValueError(f"no API is called {name!r}{_nearest(name, names)}")


def _nearest(name: str, names: Iterable[str]) -> str:
    found = get_close_matches(name, list(names), n=1)
    return f"; did you mean {found[0]}?" if found else ""


def _address(listener: Listener) -> str:
    host = f"[{listener.host}]" if ":" in listener.host else listener.host
    return f"{listener.name}://{host}:{listener.port}"

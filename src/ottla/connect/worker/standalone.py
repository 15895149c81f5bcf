"""A worker that is alone: configurations and statuses are in its memory, offsets in a topic.

As in Kafka Connect, what is changed over REST is gone after a restart; the connectors of the command line are created
again.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any, Final, NamedTuple

from ottla.config.properties import read_properties
from ottla.config.settings import ConfigError
from ottla.connect.errors import BadConfig
from ottla.connect.worker.configs import Changes, ConfigState
from ottla.connect.worker.membership import Assignment
from ottla.connect.worker.runs import TargetState
from ottla.connect.worker.statuses import StatusState

FENCED_PAUSE_S: Final = 10.0
"""How long a run that was fenced stays down: probably somebody has started a second worker with the same group.id."""


class MemoryConfigs:
    def __init__(self) -> None:
        self.state = ConfigState()
        self._lock = Lock()

    def refresh(self) -> None:
        """Nobody else changes anything."""

    def change(self, decide: Callable[[ConfigState], Changes]) -> None:
        with self._lock:
            for key, value in decide(self.state):
                self.state.apply(key, value)

    def close(self) -> None:
        """There is nothing to close."""


class MemoryStatuses:
    def __init__(self) -> None:
        self.state = StatusState()
        self._lock = Lock()

    def refresh(self) -> None:
        """Nobody else writes anything."""

    def write(self, records: Sequence[tuple[str, Mapping[str, Any] | None]]) -> None:
        with self._lock:
            for key, value in records:
                self.state.apply(key, value)

    def close(self) -> None:
        """There is nothing to close."""


class LonelyGroup:
    """A group of one worker, which has all connectors at once."""

    is_certain = True
    trouble = None

    def __init__(self, state: ConfigState, seconds: Callable[[], float]) -> None:
        self._state = state
        self._seconds = seconds

    @property
    def assignment(self) -> Assignment:
        names = frozenset([*self._state.connectors])
        return Assignment(generation=0, is_leader=True, connectors=names, known=names)

    @property
    def confirmed_s(self) -> float:
        return self._seconds() - FENCED_PAUSE_S

    def start(self) -> None:
        """There is nobody to find."""

    def rejoin(self) -> None:
        """There is nobody to share with."""

    def stop(self) -> None:
        """There is nobody to tell."""


class ConnectorFile(NamedTuple):
    name: str
    config: dict[str, str]
    initial_state: TargetState


def read_connector_file(text: str, path: str) -> ConnectorFile:
    """A connector from a file of the command line. BadConfig, with the path, if it is not one.

    The text is a JSON object of settings, or a JSON object as in POST /connectors (name, config, initial_state), or
    a properties file.
    """
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        return _make_file(_read_properties_file(text, path), path)
    if not isinstance(found.get("config"), dict):
        return _make_file(_check_texts(found, path), path)
    config = _check_texts(found["config"], path)
    name = found.get("name", config.get("name"))
    if config.get("name", name) != name:
        raise BadConfig(f"{path}: the name {name!r} differs from that in the config, {config['name']!r}")
    state = str(found.get("initial_state") or "RUNNING").upper()
    targets = {"RUNNING": TargetState.STARTED, "PAUSED": TargetState.PAUSED, "STOPPED": TargetState.STOPPED}
    if state not in targets:
        raise BadConfig(f"{path}: initial_state is RUNNING, PAUSED or STOPPED, not {state!r}")
    return _make_file({**config, "name": name or ""}, path)._replace(initial_state=targets[state])


def _read_properties_file(text: str, path: str) -> dict[str, str]:
    try:
        return read_properties(text)
    except ConfigError as error:
        raise BadConfig(f"{path}: {error}") from None


def _check_texts(found: Mapping[str, Any], path: str) -> dict[str, str]:
    for key, value in found.items():
        if not isinstance(value, str):
            raise BadConfig(f"{path}: the value of {key!r} has to be a text in quotes")
    return dict(found)


def _make_file(config: dict[str, str], path: str) -> ConnectorFile:
    if not config.get("name"):
        raise BadConfig(f"{path}: the connector has no name")
    return ConnectorFile(config["name"], config, TargetState.STARTED)

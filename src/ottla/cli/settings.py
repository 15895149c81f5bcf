"""Where a broker's settings come from on the command line, the strongest first:

--set KEY=VALUE    --data, --port, --host, --metrics-port    --config FILE    what a single broker on a laptop needs
"""

import os
from collections.abc import Iterable, Mapping
from typing import Protocol

from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.config import BrokerConfig, ConfigError, Listener, read_properties

DEFAULT_HOST = "localhost"
DEFAULT_PORT = 9092

WITHOUT_A_FILE = {"group.initial.rebalance.delay.ms": "0"}
"""As in the server.properties that Apache Kafka comes with: the first member of a group need not wait for others."""


class Options(Protocol):
    """What `ottla up` was given."""

    config: str | None
    data: str | None
    host: str | None
    port: int | None
    metrics_port: int | None
    settings: list[str]


def broker_config(options: Options, environment: Mapping[str, str]) -> BrokerConfig:
    """All of them put together and checked; a CommandError names what is wrong."""
    try:
        given = _file_settings(options.config) if options.config is not None else dict(WITHOUT_A_FILE)
        given["listeners"] = _listeners(given, options.host, options.port)
        if options.data is not None:
            given.pop("log.dir", None)
            given["log.dirs"] = options.data
        if options.metrics_port is not None:
            given["metrics.port"] = str(options.metrics_port)
        chosen = _pairs(options.settings)
        if "log.dir" in chosen:  # the old name of log.dirs, which would win over it
            given.pop("log.dirs", None)
        given.update(chosen)
        if not given.get("log.dirs") and not given.get("log.dir"):
            given["log.dirs"] = default_directory(environment)
        return _with_absolute_paths(BrokerConfig.of(given))
    except ConfigError as error:
        raise CommandError(str(error), USAGE_ERROR) from None


def data_directories(config: BrokerConfig) -> tuple[str, ...]:
    """Never empty in what `broker_config` returns."""
    return config.log_dirs or ()


def default_directory(environment: Mapping[str, str]) -> str:
    """The user's own place for data: found again from whatever directory `ottla up` is typed in."""
    base = environment.get("XDG_DATA_HOME") or os.path.join(os.path.expanduser("~"), ".local", "share")
    return os.path.join(base, "ottla")


def address_of(listener: Listener, port: int) -> str:
    """What a client on this machine types to reach a listener."""
    everywhere = listener.host in ("", "0.0.0.0", "::")
    host = DEFAULT_HOST if everywhere else listener.host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _with_absolute_paths(config: BrokerConfig) -> BrokerConfig:
    paths = [os.path.abspath(os.path.expanduser(path)) for path in data_directories(config)]
    return config.with_changes({"log.dir": None, "log.dirs": ",".join(paths)})


def _file_settings(path: str) -> dict[str, str]:
    try:
        with open(path, encoding="utf-8") as file:
            return read_properties(file.read())
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or error}", USAGE_ERROR) from None
    except UnicodeDecodeError:
        raise CommandError(f"{path}: this is not a text file", USAGE_ERROR) from None
    except ConfigError as error:
        raise CommandError(f"{path}: {error}", USAGE_ERROR) from None


def _listeners(given: Mapping[str, str], host: str | None, port: int | None) -> str:
    """The file's listeners, or the one they describe moved to another host or port."""
    if "listeners" not in given:
        listener = Listener("PLAINTEXT", DEFAULT_HOST, DEFAULT_PORT, "PLAINTEXT")
    elif host is None and port is None:
        return given["listeners"]
    else:
        bound = BrokerConfig.of(given).endpoints.bound
        if len(bound) > 1:
            raise ConfigError("--host and --port: the file sets several listeners; use --set listeners=...")
        listener = bound[0]
    if port is not None and not 0 <= port <= 65535:
        raise ConfigError(f"--port: {port} is not between 0 and 65535")
    address = listener.host if host is None else host
    name = f"[{address}]" if ":" in address else address
    return f"{listener.name}://{name}:{listener.port if port is None else port}"


def _pairs(settings: Iterable[str]) -> dict[str, str]:
    pairs = {}
    for text in settings:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--set: {text!r} is not key=value")
        pairs[key.strip()] = value.strip()
    return pairs

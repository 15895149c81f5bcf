"""The settings of `ottla up`, from its options and a file. The first of these that names a setting wins:

--set KEY=VALUE    --data, --port, --host, --node-id, --zookeeper, --metrics-port    --config FILE    defaults

--add-scram adds to initial.scram.credentials.
"""

import logging
import os
from collections.abc import Iterable, Mapping
from typing import Protocol

from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.directories import find_data_directory
from ottla.cli.pairs import parse_pairs
from ottla.config import BrokerConfig, ConfigError, Listener, read_properties
from ottla.config.broker import ALL_DIRECTORIES, OLD_ADDRESS, list_foreign

logger = logging.getLogger("ottla")

DEFAULT_HOST = "localhost"
DEFAULT_PORT = 9092

WITHOUT_A_FILE = {"group.initial.rebalance.delay.ms": "0"}
"""As in the server.properties of Apache Kafka: the first member of a group does not wait for others."""


class Options(Protocol):
    """The options of `ottla up`."""

    config: str | None
    data: str | None
    host: str | None
    port: int | None
    metrics_port: int | None
    node_id: int | None
    zookeeper: str | None
    add_scram: list[str]
    allow_anonymous_network: bool
    settings: list[str]


def broker_config(options: Options, environment: Mapping[str, str]) -> BrokerConfig:
    """The settings, merged and checked. Raises CommandError with the name of a setting that is not valid."""
    try:
        given = read_settings_file(options.config) if options.config is not None else dict(WITHOUT_A_FILE)
        given["listeners"] = _listeners(given, options.host, options.port)
        if options.data is not None:
            given.pop("log.dir", None)
            given["log.dirs"] = options.data
        if options.metrics_port is not None:
            given["metrics.port"] = str(options.metrics_port)
        if options.node_id is not None:
            given.pop("broker.id", None)
            given["node.id"] = str(options.node_id)
        if options.zookeeper is not None:
            if not options.zookeeper.strip():
                raise ConfigError("--zookeeper: it names no server, as in zk1:2181,zk2:2181/path")
            given["zookeeper.connect"] = options.zookeeper
        if options.allow_anonymous_network:
            given["allow.anonymous.network"] = "true"
        if options.add_scram:
            from ottla.security.first_users import read_first_users  # with SCRAM, which most brokers do without

            read_first_users(",".join(options.add_scram), "--add-scram")
            users = (given.get("initial.scram.credentials"), *options.add_scram)
            given["initial.scram.credentials"] = ",".join(filter(None, users))
        chosen = {key: value.strip() for key, value in parse_pairs(options.settings, "--set").items()}
        if "log.dir" in chosen:  # the old name of log.dirs, which would win over it
            given.pop("log.dirs", None)
        given.update(chosen)
        if not given.get("log.dirs") and not given.get("log.dir"):
            given["log.dirs"] = find_data_directory(environment)
        return _with_absolute_paths(BrokerConfig.of(given))
    except ConfigError as error:
        raise CommandError(str(error), USAGE_ERROR) from None


def data_directories(config: BrokerConfig) -> tuple[str, ...]:
    """The data directories. A configuration from `broker_config` always has at least one."""
    return config.log_dirs or ()


def _with_absolute_paths(config: BrokerConfig) -> BrokerConfig:
    def make_absolute(paths: Iterable[str]) -> str:
        return ",".join(
            path if path == ALL_DIRECTORIES else os.path.abspath(os.path.expanduser(path)) for path in paths
        )

    changes = {"log.dir": None, "log.dirs": make_absolute(data_directories(config))}
    if config.cordoned_log_dirs:
        changes["cordoned.log.dirs"] = make_absolute(config.cordoned_log_dirs)
    return config.with_changes(changes)


def read_settings_file(path: str) -> dict[str, str]:
    """The settings of a file. Names of plug-ins, which files of Apache Kafka may have, are left out with a warning."""
    try:
        with open(path, encoding="utf-8") as file:
            given = read_properties(file.read())
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or error}", USAGE_ERROR) from None
    except UnicodeDecodeError:
        raise CommandError(f"{path}: not UTF-8 text", USAGE_ERROR) from None
    except ConfigError as error:
        raise CommandError(f"{path}: {error}", USAGE_ERROR) from None
    foreign = list_foreign(given)
    if foreign:
        logger.warning("%s: unknown settings are ignored: %s", path, ", ".join(foreign))
    return {name: text for name, text in given.items() if name not in foreign}


def _listeners(given: Mapping[str, str], host: str | None, port: int | None) -> str:
    """The listeners of the file; --host and --port change a single one."""
    if not given.keys() & {"listeners", *OLD_ADDRESS}:
        listener = Listener("PLAINTEXT", DEFAULT_HOST, DEFAULT_PORT, "PLAINTEXT")
    elif host is None and port is None and "listeners" in given:
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

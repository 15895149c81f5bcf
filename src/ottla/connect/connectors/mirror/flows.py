"""MirrorMaker 2's configuration file: clusters by their aliases, and flows between them.

    clusters = A, B
    A.bootstrap.servers = a:9092
    B.bootstrap.servers = b:9092
    A->B.enabled = true
    A->B.topics = orders

A setting of a connector may be given for all flows or, with the prefix `A->B.`, for one. Settings with a cluster's
alias as prefix are those of its clients, `A.consumer.` and the like of one kind of them; what has to do with security
may be given without an alias, for all clusters. Each flow is a worker of the target, with MirrorMaker 2's names for its
group and its topics, so several processes with the same file share the work.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ottla.connect.connectors.mirror.mirror_settings import (
    CHECKPOINT_SETTINGS,
    CLASS_PREFIX,
    HEARTBEAT_SETTINGS,
    SOURCE_SETTINGS,
)
from ottla.connect.errors import BadConfig
from ottla.connect.settings.connectors import SOURCE_SETTINGS as COMMON_SETTINGS

CLUSTERS: Final = "clusters"
CONNECTORS: Final = ("MirrorSourceConnector", "MirrorCheckpointConnector", "MirrorHeartbeatConnector")
_BYTES: Final = "org.apache.kafka.connect.converters.ByteArrayConverter"
_OF_WORKERS: Final = (
    "offset.storage.",
    "config.storage.",
    "status.storage.",
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "config.providers",
    "spark.",
)
_OF_ALL_CLIENTS: Final = ("security.protocol", "ssl.", "sasl.")
_OF_SOME_CLIENTS: Final = ("consumer.", "producer.", "admin.")
_KNOWN: Final = (CLUSTERS, "dedicated.mode.enable.internal.rest", "listeners", "plugin.path", "spark.master")
"""What stands in a file besides, with or without effect."""
_NAMES: Final = frozenset(
    setting.name
    for settings in (COMMON_SETTINGS, SOURCE_SETTINGS, CHECKPOINT_SETTINGS, HEARTBEAT_SETTINGS)
    for setting in settings.settings
)


@dataclass(frozen=True)
class Flow:
    """What is mirrored from one cluster to another."""

    source: str
    target: str
    worker: Mapping[str, str]
    """The properties of its worker."""
    connectors: Mapping[str, Mapping[str, str]]
    """The configurations of its connectors by their names."""


def read_flows(given: Mapping[str, str]) -> list[Flow]:
    """BadConfig names what is missing."""
    aliases = [each.strip() for each in given.get(CLUSTERS, "").split(",") if each.strip()]
    if len(aliases) < 2:
        raise BadConfig(f"{CLUSTERS}: give the aliases of two clusters at least, separated by commas")
    for alias in aliases:
        if not given.get(f"{alias}.bootstrap.servers"):
            raise BadConfig(f"{alias}.bootstrap.servers is missing: brokers of the cluster {alias}")
    pairs = [(source, target) for source in aliases for target in aliases if source != target]
    flows = [_read_flow(given, *pair) for pair in pairs]
    found = [flow for flow in flows if flow.connectors]
    if not any(CONNECTORS[0] in flow.connectors for flow in found):
        raise BadConfig(f"no flow is enabled: set {aliases[0]}->{aliases[1]}.enabled=true")
    return found


def list_unknown(given: Mapping[str, str]) -> list[str]:
    """Names of settings that have no effect, in order."""
    aliases = [each.strip() for each in given.get(CLUSTERS, "").split(",") if each.strip()]
    flows = tuple(f"{source}->{target}." for source in aliases for target in aliases if source != target)
    prefixes = (*_OF_WORKERS, *_OF_ALL_CLIENTS, *flows, *(f"{alias}." for alias in aliases))
    return sorted(name for name in given if name not in _NAMES | {*_KNOWN} and not name.startswith(prefixes))


def _list_client_settings(given: Mapping[str, str], alias: str) -> dict[str, str]:
    """Those of a cluster's clients, without its alias."""
    return {
        **{name: text for name, text in given.items() if name.startswith(_OF_ALL_CLIENTS)},
        **_strip(given, f"{alias}."),
    }


def _put_aside(side: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Settings of clients as connectors have them: `source.consumer.` and `source.cluster.`, or the target's."""
    return {
        f"{side}.{name}" if name.startswith(_OF_SOME_CLIENTS) else f"{side}.cluster.{name}": text
        for name, text in settings.items()
    }


def _read_flow(given: Mapping[str, str], source: str, target: str) -> Flow:
    own = _strip(given, f"{source}->{target}.")
    common = {name: text for name, text in given.items() if name in _NAMES}
    config = {
        **common,
        "source.cluster.alias": source,
        "target.cluster.alias": target,
        **_put_aside("source", _list_client_settings(given, source)),
        **_put_aside("target", _list_client_settings(given, target)),
        **own,
    }
    is_enabled = _is_true(own.get("enabled", "false"))
    beats = _is_true(config.get("emit.heartbeats.enabled", "true"))
    config["enabled"] = "true"
    chosen = [*(CONNECTORS[:2] if is_enabled else ()), *(CONNECTORS[2:] if beats else ())]
    connectors = {name: {**config, "name": name, "connector.class": CLASS_PREFIX + name} for name in chosen}
    names = {"config": "configs", "offset": "offsets", "status": "status"}
    topics = {f"{kind}.storage.topic": f"mm2-{name}.{source}.internal" for kind, name in names.items()}
    worker = {
        **topics,
        "group.id": f"{source}-mm2",
        "client.id": f"{source}->{target}",
        "key.converter": _BYTES,
        "value.converter": _BYTES,
        "header.converter": _BYTES,
        "listeners": "http://127.0.0.1:0",
        **{name: text for name, text in given.items() if name.startswith(_OF_WORKERS)},
        **_list_client_settings(given, target),
    }
    return Flow(source, target, worker, connectors)


def _strip(given: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): text for name, text in given.items() if name.startswith(prefix)}


def _is_true(text: str) -> bool:
    return text.strip().lower() == "true"

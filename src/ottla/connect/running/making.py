"""Makes what a run needs from its specification: the connector, converters, transformations, clients and plans."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from ottla.client.client import READ_COMMITTED, READ_UNCOMMITTED, Client
from ottla.client.transactions import TIMEOUT_MS
from ottla.connect.connector import Connector, Sink, Source
from ottla.connect.converters.choice import make_converter, make_header_converter
from ottla.connect.errors import BadConfig
from ottla.connect.running.conversion import Conversion, Transforms
from ottla.connect.running.sink_loop import RESETS, Subscription
from ottla.connect.running.sink_tasks import SinkPlan
from ottla.connect.running.source_tasks import SourcePlan
from ottla.connect.running.tolerance import ErrorPolicy
from ottla.connect.running.topics import read_topic_groups
from ottla.connect.settings.connectors import SINK_SETTINGS, SOURCE_SETTINGS
from ottla.connect.settings.parsing import parse
from ottla.connect.worker.runs import ConnectorSpec
from pyspark_ottla.options import RecordShape, parse_record_shape

DRIVER_PATIENCE_MS: Final = 5_000
"""How long one request of the driver is tried. Then the driver looks whether it shall stop, and tries again."""

HEADER_CONVERTER: Final = "org.apache.kafka.connect.storage.SimpleHeaderConverter"
_ISOLATIONS: Final = {"read_committed": READ_COMMITTED, "read_uncommitted": READ_UNCOMMITTED}

_PREFIXES: Final = (
    *("key.converter.", "value.converter.", "header.converter.", "transforms.", "predicates.", "topic.creation."),
    *("producer.override.", "consumer.override.", "admin.override."),
)
"""How the names of settings begin that are not declared one by one."""

MakeTransforms = Callable[[Mapping[str, str]], Transforms | None]


@dataclass(frozen=True)
class RunConfig:
    """The configuration of a run, without references to config providers."""

    spec: ConnectorSpec
    given: Mapping[str, str]
    values: Mapping[str, Any]
    """Parsed."""
    connector_class: type[Connector]

    @classmethod
    def read(cls, spec: ConnectorSpec, resolved: Mapping[str, str], connector_class: type[Connector]) -> "RunConfig":
        common = SOURCE_SETTINGS if issubclass(connector_class, Source) else SINK_SETTINGS
        own = connector_class.settings
        values = parse(replace(own, settings=(*common.settings, *own.settings)), resolved)
        return cls(spec, resolved, values, connector_class)

    def list_unknown(self) -> list[str]:
        """The names of settings that have no effect, in order: nobody has declared them."""
        common = SOURCE_SETTINGS if issubclass(self.connector_class, Source) else SINK_SETTINGS
        own = self.connector_class.settings
        known = {each.name for each in (*common.settings, *own.settings)} | own.harmless.keys() | own.accepted
        prefixes = _PREFIXES + self.connector_class.prefixes
        return sorted(name for name in self.given if name not in known and not name.startswith(prefixes))

    def make_connector(self) -> Connector:
        return self.connector_class(self.values, self.spec.context)

    def find_client_settings(self, role: str) -> dict[str, str]:
        """Of the `producer`, `consumer` or `admin`: the worker's, then what the connector overrides."""
        worker, name = self.spec.worker, self.spec.name
        return {
            "client.id": f"connector-{role}-{name}",
            **self.spec.context.client_settings,
            **_strip(worker, f"{role}."),
            **_strip(self.given, f"{role}.override."),
        }

    def make_client(self, role: str, *, for_driver: bool = False) -> Client:
        settings = self.find_client_settings(role)
        if for_driver:
            settings = {"default.api.timeout.ms": str(DRIVER_PATIENCE_MS), **settings}
        try:
            return Client(settings)
        except ValueError as error:
            raise BadConfig(str(error)) from None

    @property
    def transaction_timeout_ms(self) -> int:
        text = self.find_client_settings("producer").get("transaction.timeout.ms", str(TIMEOUT_MS))
        if not text.isdecimal():
            raise BadConfig(f"transaction.timeout.ms={text!r} is not a number")
        return int(text)

    @property
    def offsets_topic(self) -> str:
        """The connector's own, or the worker's."""
        return self.values.get("offsets.storage.topic") or self.spec.worker["offset.storage.topic"]

    def make_conversion(self, make_transforms: MakeTransforms) -> Conversion:
        key_name, key_config = self._find_converter("key.converter")
        value_name, value_config = self._find_converter("value.converter")
        header_name, header_config = self._find_converter("header.converter", HEADER_CONVERTER)
        return Conversion(
            make_converter(key_name, key_config, True),
            make_converter(value_name, value_config, False),
            make_header_converter(header_name, header_config),
            make_transforms(self.given),
        )

    def _find_converter(self, name: str, default: str | None = None) -> tuple[str, dict[str, str]]:
        """The connector's own with its settings, or else the worker's with its."""
        for config in (self.given, self.spec.worker):
            if config.get(name):
                return config[name], _strip(config, f"{name}.")
        if default is None:
            raise BadConfig(f"neither the connector nor the worker has {name}")
        return default, {}

    def make_source_plan(self, source: Source, make_transforms: MakeTransforms) -> SourcePlan:
        return SourcePlan(
            source,
            self.make_conversion(make_transforms),
            ErrorPolicy.of(self.values),
            self.make_client("producer"),
            self._read_shape(),
            read_topic_groups(self.values) if self._may_create_topics else [],
            self.offsets_topic,
            self.transaction_timeout_ms,
        )

    def make_sink_plan(self, sink: Sink, make_transforms: MakeTransforms) -> SinkPlan:
        subscription = self.read_subscription()
        return SinkPlan(
            sink,
            self.make_conversion(make_transforms),
            ErrorPolicy.of(self.values),
            self.make_client("consumer"),
            self.make_client("producer"),
            self._read_shape(),
            subscription.isolation,
            subscription.group,
            self.transaction_timeout_ms,
        )

    @property
    def _may_create_topics(self) -> bool:
        """topic.creation.enable of the worker."""
        return self.spec.worker.get("topic.creation.enable", "true").strip().lower() != "false"

    def _read_shape(self) -> RecordShape:
        try:
            return parse_record_shape(self.find_client_settings("producer"))
        except ValueError as error:
            raise BadConfig(str(error)) from None

    def read_subscription(self) -> Subscription:
        settings = self.find_client_settings("consumer")
        reset = settings.get("auto.offset.reset", "earliest")
        if reset not in (*RESETS, "none"):
            raise BadConfig(f"auto.offset.reset={reset!r} is none of {', '.join(RESETS)}, none")
        isolation = settings.get("isolation.level", "read_committed")
        if isolation not in _ISOLATIONS:
            raise BadConfig(f"isolation.level={isolation!r} is none of {', '.join(_ISOLATIONS)}")
        pattern = self.values["topics.regex"]
        try:
            re.compile(pattern)
        except re.error as error:
            raise BadConfig(f"topics.regex={pattern!r} is no pattern: {error}") from None
        group = settings.get("group.id", f"connect-{self.spec.name}")
        return Subscription(self.values["topics"], pattern, group, _ISOLATIONS[isolation], reset)


def _strip(config: Mapping[str, str], prefix: str) -> dict[str, str]:
    """The settings whose names begin with the prefix, without it."""
    return {name.removeprefix(prefix): text for name, text in config.items() if name.startswith(prefix)}

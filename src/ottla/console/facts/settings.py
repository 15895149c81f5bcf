"""Settings of topics and brokers: values with their sources, and changes."""

from collections.abc import Mapping
from typing import NamedTuple

from ottla.client.client import Client, error_code
from ottla.errors import KafkaError
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

TOPIC, BROKER = 2, 4
SOURCES = {
    1: "topic",
    2: "broker, dynamic",
    3: "cluster, dynamic",
    4: "broker, file",
    5: "default",
    6: "broker logger",
    7: "client metrics",
    8: "group",
}
OWN = 1
_SET, _DELETE = 0, 1


class Setting(NamedTuple):
    name: str
    value: str | None
    source: str
    is_own: bool
    """Whether it is set for this very resource."""
    is_read_only: bool
    is_sensitive: bool
    documentation: str


def read_settings(client: Client, kind: int, name: str) -> list[Setting]:
    """All settings of a topic or broker, those that are set for it first. Raises KafkaError if it may not be read."""
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=False, include_documentation=True)
    answer = client.ask_broker(int(name), request) if kind == BROKER else client.ask_any(request)
    (found,) = answer.results
    raise_for_code(found.error_code, found.error_message, name)
    own = 2 if kind == BROKER else OWN
    settings = [
        Setting(
            each.name,
            each.value,
            SOURCES.get(each.config_source, "unknown"),
            each.config_source == own,
            each.read_only,
            each.is_sensitive,
            each.documentation or "",
        )
        for each in found.configs
    ]
    return sorted(settings, key=lambda each: (not each.is_own, each.name))


def change_settings(client: Client, kind: int, name: str, changes: Mapping[str, str | None]) -> None:
    """Set these settings; None removes one, so that the default holds again. Raises KafkaError if one is refused."""
    configs = [
        AlterableConfig(name=key, config_operation=_DELETE if value is None else _SET, value=value)
        for key, value in changes.items()
    ]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource])
    answer = client.ask_broker(int(name), request) if kind == BROKER else client.ask_any(request)
    for each in answer.responses:
        raise_for_code(each.error_code, each.error_message, name)


def raise_for_code(code: int, message: str | None, what: str) -> None:
    """Raises KafkaError, with the broker's own words if it has some."""
    if code:
        raise KafkaError(error_code(code), message or f"{what}: {error_code(code).name}")

"""`ottla config list`: the topics, brokers, groups, users, ... that have settings of their own, and these settings."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.cli.command_error import CommandError
from ottla.cli.quota_settings import QUOTA_KINDS
from ottla.cli.quotas import DEFAULT, TYPES, format_amount
from ottla.cli.resource_settings import RESOURCE_TYPES, SOURCES, describe_resource

if TYPE_CHECKING:
    from ottla.client.client import Client
    from ottla.wire.messages.describe_configs import DescribeConfigsResponse

OWN_SOURCES = {"topic": 1, "broker": 2, "broker-logger": 6, "client-metrics": 7, "group": 8}
"""The source of a setting that was set for the resource itself."""
DEFAULT_BROKER_SOURCE = 3
DESCRIBED_AT_ONCE = 500
INTERNAL = "__"
"""How the names of internal topics begin, whose settings the brokers chose."""
_ANY_NAME = 2


class ListedSetting(NamedTuple):
    name: str
    """`<default>` for the settings of all brokers, users, ... that have none of their own."""
    setting: str
    value: str | None


def list_settings(client: "Client", kind: str) -> list[ListedSetting]:
    found = _list_quotas(client, kind) if kind in QUOTA_KINDS else _list_resources(client, kind)
    return sorted(found, key=lambda each: (each.name, each.setting))


def find_own_source(kind: str, name: str) -> str:
    """The source of settings that were set for this resource, as the command line names it."""
    if kind in QUOTA_KINDS:
        return f"dynamic-{kind}"
    return SOURCES[DEFAULT_BROKER_SOURCE if kind == "broker" and not name else OWN_SOURCES[kind]]


def _list_resources(client: "Client", kind: str) -> Iterator[ListedSetting]:
    from ottla.client.connection import name_error

    defaults: object = None
    for answer in _describe_all(client, kind, _list_names(client, kind)):
        for result in answer.results:
            name = result.resource_name
            if result.error_code:
                reason = result.error_message or name_error(result.error_code)
                raise CommandError(f"{describe_resource(kind, name)}: {reason}")
            if result.configs is defaults:
                continue
            wanted = DEFAULT_BROKER_SOURCE if kind == "broker" and not name else OWN_SOURCES[kind]
            own = [entry for entry in result.configs if entry.config_source == wanted]
            if not own:
                defaults = result.configs  # the list of the next topics without settings of their own is the same one
            for entry in own:
                yield ListedSetting(name or DEFAULT, entry.name, "(secret)" if entry.is_sensitive else entry.value)


def _describe_all(client: "Client", kind: str, names: Sequence[str]) -> "Iterator[DescribeConfigsResponse]":
    from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

    def make_request(*chosen: str) -> DescribeConfigsRequest:
        code = RESOURCE_TYPES[kind]
        return DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(resource_type=code, resource_name=name, configuration_keys=None)
                for name in chosen
            ]
        )

    if kind in ("broker", "broker-logger"):
        for name in names:  # each broker knows its own settings only
            request = make_request(name)
            yield client.ask_broker(int(name), request) if name else client.ask_any(request)
    else:
        begins = range(0, len(names), DESCRIBED_AT_ONCE)
        yield from client.ask_any_in_turn(make_request(*names[each : each + DESCRIBED_AT_ONCE]) for each in begins)


def _list_names(client: "Client", kind: str) -> Sequence[str]:
    from ottla.client.connection import name_error
    from ottla.wire.messages.list_config_resources import ListConfigResourcesRequest
    from ottla.wire.messages.metadata import MetadataRequest

    if kind == "topic":
        answer = client.ask_any(MetadataRequest(topics=None, allow_auto_topic_creation=False))
        return sorted(topic.name for topic in answer.topics if topic.name and not topic.name.startswith(INTERNAL))
    if kind in ("broker", "broker-logger"):
        return [*map(str, client.list_brokers()), *([""] if kind == "broker" else [])]
    answer = client.ask_any(ListConfigResourcesRequest(resource_types=[RESOURCE_TYPES[kind]]))
    if answer.error_code:
        raise CommandError(f"cannot list settings of the kind {kind}: {name_error(answer.error_code)}")
    return sorted({each.resource_name for each in answer.config_resources})


def _list_quotas(client: "Client", kind: str) -> list[ListedSetting]:
    """Quotas of this kind alone: one of a user together with a client id is listed by `ottla quota list`."""
    from ottla.client.connection import name_error
    from ottla.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest

    asked = ComponentData(entity_type=TYPES[kind], match_type=_ANY_NAME, match=None)
    answer = client.ask_any(DescribeClientQuotasRequest(components=[asked], strict=True))
    if answer.error_code:
        raise CommandError(f"cannot list quotas: {answer.error_message or name_error(answer.error_code)}")
    found = [
        ListedSetting(entry.entity[0].entity_name or DEFAULT, value.key, format_amount(value.value))
        for entry in answer.entries or ()
        for value in entry.values
    ]
    return found + (_list_logins(client) if kind == "user" else [])


def _list_logins(client: "Client") -> list[ListedSetting]:
    from ottla.cli.user import find_users

    users = find_users(client, required=False)
    return [
        ListedSetting(user, mechanism, f"iterations={iterations}")
        for user, mechanisms in users.items()
        for mechanism, iterations in mechanisms.items()
    ]

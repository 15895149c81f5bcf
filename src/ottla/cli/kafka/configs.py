"""`ottla kafka configs`: kafka-configs. Settings of topics, brokers, ..., quotas and SCRAM credentials of users."""

import argparse
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.cli.client import require_text
from ottla.cli.client_settings import read_properties_file
from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.consumer_groups import list_groups
from ottla.cli.kafka.flags import add_client_flags, add_switches, choose_action, explain_code, find_topics, open_client
from ottla.cli.pairs import parse_pairs
from ottla.cli.quotas import alter_quotas, check_key, parse_amount
from ottla.cli.user import ITERATIONS_MIN, MECHANISMS, delete_mechanism, find_users, set_password

if TYPE_CHECKING:
    from ottla.client.client import Client

RESOURCES = {"topics": 2, "brokers": 4, "broker-loggers": 8, "client-metrics": 16, "groups": 32}
QUOTAS = {"users": "user", "clients": "client", "ips": "ip"}
"""Kafka's name -> that of `ottla quota`."""
COMPONENTS = {"users": "user", "clients": "client-id", "ips": "ip"}
TITLES = {"users": "user-principal", "clients": "client-id", "ips": "ip"}
SOURCES = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
OWN_SOURCES = {"topics": 1, "brokers": 2, "broker-loggers": 6, "client-metrics": 7, "groups": 8}
DEFAULT_BROKER = 3
DEFAULTS = ("brokers", *QUOTAS)
SHORT = {
    "topic": "topics",
    "client": "clients",
    "user": "users",
    "broker": "brokers",
    "broker-logger": "broker-loggers",
    "ip": "ips",
    "group": "groups",
    "client-metrics": "client-metrics",
}
"""Flags that name a kind and an entity of it, in the order in which Kafka's tool names them."""
SET, DELETE = 0, 1
_BETWEEN = re.compile(r",(?![^\[]*\])")


class Entity(NamedTuple):
    kind: str
    name: str | None
    """Empty for the defaults, None for every one."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_client_flags(parser)
    add_switches(
        parser,
        [
            ("--describe", "show settings"),
            ("--alter", "change settings"),
            ("--all", "with --describe: also settings that were not changed"),
            ("--force", "has no effect: nothing is asked"),
        ],
    )
    parser.add_argument("--entity-type", action="append", default=[], choices=(*RESOURCES, *QUOTAS))
    parser.add_argument("--entity-name", action="append", dest="names", default=[], metavar="NAME")
    parser.add_argument("--entity-default", action="append_const", dest="names", const="", help="the defaults of all")
    for flag, kind in SHORT.items():
        parser.add_argument(f"--{flag}", action="append", dest=f"short_{kind}", default=[], metavar="NAME")
    for kind in DEFAULTS:
        flag = f"--{kind.removesuffix('s')}-defaults"
        parser.add_argument(flag, action="append_const", dest=f"short_{kind}", const="", help="the defaults of all")
    parser.add_argument("--add-config", metavar="KEY=VALUE,KEY=[A,B]", help="settings to set")
    parser.add_argument("--add-config-file", metavar="FILE", help="a properties file with settings to set")
    parser.add_argument("--delete-config", metavar="KEY,KEY", help="settings to reset")


def run(options: argparse.Namespace) -> None:
    action = choose_action(options, ("describe", "alter"))
    entities = _find_entities(options)
    require_text(*(entity.name for entity in entities if entity.name))
    kinds = [entity.kind for entity in entities]
    if len(kinds) > 1 and sorted(kinds) != ["clients", "users"]:
        raise CommandError("several kinds are possible only for a user with a client", USAGE_ERROR)
    if action == "alter":
        added, removed = _read_changes(options)
        if any(entity.name is None for entity in entities):
            raise CommandError(f"--alter: name the {kinds[0]} with --entity-name, or --entity-default", USAGE_ERROR)
        with open_client(options) as client:
            if kinds[0] in QUOTAS:
                _alter_quotas(client, entities, added, removed)
            else:
                _alter_resource(client, entities[0], added, removed)
        kind, name = entities[0]
        done = f"config for {kind.removesuffix('s')} {name}" if name else f"default config for {kind} in the cluster"
        print(f"Completed updating {done}.")
        return
    with open_client(options) as client:
        if kinds[0] in QUOTAS:
            _describe_quotas(client, entities)
        else:
            _describe_resources(client, entities[0], everything=options.all)


def _find_entities(options: argparse.Namespace) -> list[Entity]:
    """The kinds and names of --entity-type and --entity-name in their order, or of the flags that stand for both."""
    types = dict.fromkeys(options.entity_type)
    names: list[str | None] = [*options.names]
    if len(names) > len(types):
        raise CommandError("each --entity-name and --entity-default needs an --entity-type before it", USAGE_ERROR)
    names += [None] * (len(types) - len(names))
    found = [Entity(kind, name) for kind, name in zip(types, names, strict=True)]
    for kind in SHORT.values():
        given = getattr(options, f"short_{kind}")
        if len(given) > 1 or (given and kind in types):
            raise CommandError(f"{kind} are named more than once", USAGE_ERROR)
        found += [Entity(kind, name) for name in given]
    if not found:
        raise CommandError("give --entity-type, or --topic, --broker, --user, ...", USAGE_ERROR)
    for entity in found:
        if entity.name == "" and entity.kind not in DEFAULTS:
            raise CommandError(f"{entity.kind} have no defaults; name one", USAGE_ERROR)
        if entity.kind.startswith("broker") and entity.name and not entity.name.isdecimal():
            raise CommandError(f"{entity.name!r} is not a broker's id", USAGE_ERROR)
    return found


def _read_changes(options: argparse.Namespace) -> tuple[dict[str, str], list[str]]:
    added = read_properties_file(options.add_config_file) if options.add_config_file else {}
    if options.add_config:
        pairs = parse_pairs(filter(None, _BETWEEN.split(options.add_config)), "--add-config")
        added |= {name: value.strip().removeprefix("[").removesuffix("]") for name, value in pairs.items()}
    removed = [name.strip() for name in (options.delete_config or "").split(",") if name.strip()]
    if not added and not removed:
        raise CommandError("--alter: give --add-config, --add-config-file or --delete-config", USAGE_ERROR)
    require_text(*added, *added.values(), *removed)
    return added, removed


def _ask_about(client: "Client", entity: Entity, request: Any) -> Any:
    """Brokers and their loggers are asked themselves, everything else any broker."""
    if entity.kind in ("brokers", "broker-loggers") and entity.name:
        if int(entity.name) not in client.list_brokers():
            raise CommandError(f"there is no broker {entity.name}")
        return client.ask_broker(int(entity.name), request)
    return client.ask_any(request)


def _alter_resource(client: "Client", entity: Entity, added: dict[str, str], removed: list[str]) -> None:
    from ottla.wire.messages.incremental_alter_configs import (
        AlterableConfig,
        AlterConfigsResource,
        IncrementalAlterConfigsRequest,
    )

    changes = [AlterableConfig(name=key, config_operation=SET, value=value) for key, value in added.items()]
    changes += [AlterableConfig(name=key, config_operation=DELETE, value=None) for key in removed]
    kind = RESOURCES[entity.kind]
    resource = AlterConfigsResource(resource_type=kind, resource_name=entity.name or "", configs=changes)
    (result,) = _ask_about(client, entity, IncrementalAlterConfigsRequest(resources=[resource])).responses
    if result.error_code:
        reason = explain_code(result.error_code, result.error_message)
        raise CommandError(f"{entity.kind.removesuffix('s')} {entity.name!r}: {reason}")


def _describe_resources(client: "Client", entity: Entity, *, everything: bool) -> None:
    from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

    if entity.kind == "groups" and entity.name is not None and entity.name not in _list_names(client, "groups"):
        raise CommandError(f"there is no group {entity.name!r}, and it has no settings")
    for name in [entity.name] if entity.name is not None else _list_names(client, entity.kind):
        resource = DescribeConfigsResource(
            resource_type=RESOURCES[entity.kind], resource_name=name, configuration_keys=None
        )
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
        (result,) = _ask_about(client, Entity(entity.kind, name), request).results
        kind = entity.kind.removesuffix("s")
        if result.error_code:
            raise CommandError(f"{kind} {name!r}: {explain_code(result.error_code, result.error_message)}")
        if name:
            print(f"{'All' if everything else 'Dynamic'} configs for {kind} {name} are:")
        else:
            print(f"Default configs for {entity.kind} in the cluster are:")
        wanted = OWN_SOURCES[entity.kind] if name else DEFAULT_BROKER
        for each in sorted(result.configs, key=lambda each: each.name):
            if everything or wanted in (each.config_source, *(synonym.source for synonym in each.synonyms)):
                _print_setting(each)


def _print_setting(setting: Any) -> None:
    synonyms = ", ".join(
        f"{SOURCES.get(each.source, 'UNKNOWN')}:{each.name}={_text(each.value)}" for each in setting.synonyms
    )
    sensitive = str(setting.is_sensitive).lower()
    print(f"  {setting.name}={_text(setting.value)} sensitive={sensitive} synonyms={{{synonyms}}}")


def _text(value: str | None) -> str:
    return "null" if value is None else value


def _list_names(client: "Client", kind: str) -> list[str]:
    from ottla.wire.messages.list_config_resources import ListConfigResourcesRequest

    if kind == "topics":
        return list(find_topics(client, None))
    if kind in ("brokers", "broker-loggers"):
        return [*map(str, client.list_brokers()), *([""] if kind == "brokers" else [])]
    answer = client.ask_any(ListConfigResourcesRequest(resource_types=[RESOURCES[kind]]))
    if answer.error_code:
        raise CommandError(f"cannot list {kind}: {explain_code(answer.error_code, None)}")
    names = {each.resource_name for each in answer.config_resources}
    return sorted(names | ({group.name for group in list_groups(client)} if kind == "groups" else set()))


def _alter_quotas(client: "Client", entities: list[Entity], added: dict[str, str], removed: list[str]) -> None:
    logins = [key for key in (*added, *removed) if key in MECHANISMS]
    if logins:
        user = entities[0].name
        if [entity.kind for entity in entities] != ["users"] or not user:
            raise CommandError(f"{logins[0]} is a login of a user; name one", USAGE_ERROR)
        for key in logins:
            if key in added:
                password, iterations = _parse_credential(key, added[key])
                set_password(client, user, password, [key], iterations)
            else:
                delete_mechanism(client, user, key)
    for key in (*added, *removed):
        if key not in MECHANISMS:
            check_key(key)
    values = {key: parse_amount(key, value) for key, value in added.items() if key not in MECHANISMS}
    gone = [key for key in removed if key not in MECHANISMS]
    if values or gone:
        alter_quotas(client, {QUOTAS[entity.kind]: entity.name or None for entity in entities}, values, gone)


def _parse_credential(mechanism: str, text: str) -> tuple[str, int]:
    """`iterations=8192,password=secret`; iterations may be left out."""
    found = parse_pairs(text.split(",", 1) if text.startswith("iterations=") else [text], mechanism)
    iterations = found.get("iterations", str(ITERATIONS_MIN))
    if not found.get("password") or not iterations.isdecimal() or len(iterations) > 9:
        raise CommandError(f"{mechanism}: give [iterations=8192,password=...] or [password=...]", USAGE_ERROR)
    return found["password"], int(iterations)


def _describe_quotas(client: "Client", entities: list[Entity]) -> None:
    from ottla.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest

    exact, default, every = 0, 1, 2
    components = [
        ComponentData(
            entity_type=COMPONENTS[entity.kind],
            match_type=every if entity.name is None else exact if entity.name else default,
            match=entity.name or None,
        )
        for entity in entities
    ]
    answer = client.ask_any(DescribeClientQuotasRequest(components=components, strict=True))
    if answer.error_code:
        raise CommandError(f"cannot list quotas: {explain_code(answer.error_code, answer.error_message)}")
    lines = []
    for entry in answer.entries or ():
        parts = {part.entity_type: part.entity_name for part in entry.entity}
        values = ", ".join(f"{value.key}={format_double(value.value)}" for value in entry.values)
        lines.append(f"Quota configs for {', '.join(_name_parts(parts))} are {values}")
    for line in sorted(lines):
        print(line)
    if [entity.kind for entity in entities] == ["users"] and entities[0].name != "":
        for user, mechanisms in sorted(find_users(client, required=False).items()):
            if entities[0].name in (None, user):
                shown = ", ".join(f"{name}=iterations={number}" for name, number in sorted(mechanisms.items()))
                print(f"SCRAM credential configs for user-principal '{user}' are {shown}")


def _name_parts(parts: dict[str, str | None]) -> Iterator[str]:
    for kind, component in COMPONENTS.items():
        if component in parts:
            name = parts[component]
            yield f"the default {TITLES[kind]}" if name is None else f"{TITLES[kind]} '{name}'"


def format_double(value: float) -> str:
    """As Java prints a double: 1000.0, 1.048576E7."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(float(value))
    digits, _, exponent = f"{value:.17e}".partition("e")
    short = repr(value / 10 ** int(exponent)) if abs(int(exponent)) < 300 else digits.rstrip("0")
    return f"{short}E{int(exponent)}"

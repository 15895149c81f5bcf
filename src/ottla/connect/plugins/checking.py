"""Checks the whole configuration of a connector, as Kafka Connect's validation does.

The parts are the settings that every connector has, those of its transformations and predicates, those of the groups of
topics it creates, its own, its overrides of Kafka clients, and those of its converters. What Kafka Connect notices only
when a connector starts is noticed here too: groups of topics, and predicates that a transformation names.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from ottla.connect.errors import BadConfig
from ottla.connect.plugins.overrides import OverridePolicy
from ottla.connect.plugins.registry import Plugin, PluginType, Registry
from ottla.connect.settings.connectors import (
    CONNECTOR_VERSION,
    CONVERTERS,
    PREDICATES,
    SINK_SETTINGS,
    SOURCE_SETTINGS,
    TOPIC_CREATION,
    TOPIC_CREATION_PREFIX,
    TRANSFORMS,
    refuse_sink_topics,
    topic_creation_settings,
)
from ottla.connect.settings.definition import REQUIRED, Importance, Kind, Setting, Settings, Width
from ottla.connect.settings.validation import Checked, CheckedSetting, add_errors, check_settings, embed
from ottla.connect.transforms.chain import make_transforms

Given = Mapping[str, str | None]

_NULL: Final = "Null value can not be supplied as the configuration value."
_DEFAULT_HEADER_CONVERTER: Final = "org.apache.kafka.connect.storage.SimpleHeaderConverter"
_PREDICATE_OF_A_TRANSFORMATION: Final = (
    Setting("predicate", Kind.STRING, None, "The alias of the predicate that decides about the transformation."),
    Setting("negate", Kind.BOOLEAN, False, "Whether the predicate has to be false."),
)


def find_version_error(plugin: Plugin, version: str | None) -> str | None:
    """Only the installed version of a plug-in can be asked for."""
    if version is None or version.strip().strip("[]") in (plugin.version, f"{plugin.version},{plugin.version}"):
        return None
    wanted = version.strip()
    shown = wanted if wanted[:1] in "[(" else f"[{wanted},{wanted}]"
    return (
        f"Plugin {plugin.class_name} not found that matches the version range {shown},"
        f" available versions: [{plugin.version}]"
    )


class ConfigurationChecker:
    def __init__(self, registry: Registry, policy: OverridePolicy, worker: Mapping[str, str]) -> None:
        self._registry = registry
        self._policy = policy
        self._worker = worker

    def check(self, plugin: Plugin, given: Given) -> list[tuple[str, Checked]]:
        """All parts with their errors, each with the prefix of its names."""
        base = SOURCE_SETTINGS if plugin.type is PluginType.SOURCE else SINK_SETTINGS
        settings = (
            *(self._adapt(setting, plugin, given) for setting in base.settings),
            *self._list_aliased("transforms", TRANSFORMS, PluginType.TRANSFORMATION, given),
            *self._list_aliased("predicates", PREDICATES, PluginType.PREDICATE, given),
            *(_list_topic_creation(given) if plugin.type is PluginType.SOURCE else ()),
        )
        checked = check_settings(Settings(settings), given, self._find_class)
        if plugin.type is PluginType.SINK:
            for name, errors in refuse_sink_topics(given).items():
                add_errors(checked, name, errors)
        self._check_versions(plugin, given, checked)
        _check_predicates(given, checked)
        _try_transformations(given, checked)
        checked |= check_settings(plugin.settings, given)
        for name, text in given.items():
            if text is None:
                add_errors(checked, name, [_NULL])
        return [("", checked), ("", self._policy.check(given)), *self._check_converters(given, checked)]

    def _adapt(self, setting: Setting, plugin: Plugin, given: Given) -> Setting:
        """Defaults and recommendations that depend on what is installed and on the worker."""
        if setting.name == CONNECTOR_VERSION:
            return replace(setting, default=plugin.version, recommend=lambda *_: [plugin.version])
        if setting.name in CONVERTERS:
            types = self._types_of(setting.name)
            known = [each.class_name for each in self._registry.of_types(*types)]
            return replace(setting, default=self._find_default_converter(setting.name), recommend=lambda *_: known)
        name = setting.name.removesuffix(".plugin.version")
        if name in CONVERTERS:
            text = given.get(name) if name in given else self._find_default_converter(name)
            converter = self._find(name, text)
            return replace(setting, **_describe_version(converter), is_visible=lambda *_: converter is not None)
        return setting

    def _find_default_converter(self, name: str) -> str | None:
        """The worker's converter."""
        given = self._worker.get(name)
        if given is None:
            return _DEFAULT_HEADER_CONVERTER if name == "header.converter" else None
        plugin = self._find(name, given)
        return given if plugin is None else plugin.class_name

    def _types_of(self, name: str) -> tuple[PluginType, ...]:
        """What a setting of a class may name."""
        if name.startswith("transforms."):
            return (PluginType.TRANSFORMATION,)
        if name.startswith("predicates."):
            return (PluginType.PREDICATE,)
        return (PluginType.HEADER_CONVERTER if name == "header.converter" else PluginType.CONVERTER,)

    def _find(self, name: str, text: str | None) -> Plugin | None:
        return None if text is None else self._registry.find(text.strip(), *self._types_of(name))

    def _find_class(self, setting: Setting, text: str) -> str | None:
        plugin = self._find(setting.name, text)
        return None if plugin is None else plugin.class_name

    def _list_aliased(self, kind: str, group: str, type_: PluginType, given: Given) -> list[Setting]:
        """The settings of every transformation or predicate that the configuration names."""
        word = type_.value
        known = [each.class_name for each in self._registry.of_types(type_)]
        settings = []
        for alias in _read_aliases(given, kind):
            prefix, in_group = f"{kind}.{alias}.", f"{group}: {alias}"
            plugin = self._find(f"{prefix}type", given.get(f"{prefix}type"))
            title = f"{word.capitalize()} type for {alias}"
            type_setting = Setting(
                f"{prefix}type", Kind.CLASS, REQUIRED, f"The class of the {word} '{alias}'.", Importance.HIGH
            )
            settings.append(
                replace(
                    type_setting,
                    group=in_group,
                    order=0,
                    width=Width.LONG,
                    display_name=title,
                    recommend=lambda *_: known,
                )
            )
            version = Setting(
                f"{prefix}plugin.version", Kind.STRING, None, f"The version of the {word} '{alias}'.", Importance.HIGH
            )
            described = _describe_version(plugin)
            title = f"{word.capitalize()} version for {alias}"
            settings.append(
                replace(version, group=in_group, order=1, width=Width.LONG, display_name=title, **described)
            )
            if plugin is not None:
                more = _PREDICATE_OF_A_TRANSFORMATION if type_ is PluginType.TRANSFORMATION else ()
                own = [
                    each for each in plugin.settings.settings if each.name not in ("predicate", "negate") or not more
                ]
                settings += embed(Settings((*own, *more)), prefix, in_group, 2)
        return settings

    def _check_versions(self, plugin: Plugin, given: Given, checked: Checked) -> None:
        """A version that is not installed is reported for the class and for the version, as in Kafka Connect."""
        found: list[tuple[str, str, Plugin | None]] = [("connector.class", CONNECTOR_VERSION, plugin)]
        for name in CONVERTERS:
            found.append((name, f"{name}.plugin.version", self._find(name, given.get(name))))
        for kind in ("transforms", "predicates"):
            for alias in _read_aliases(given, kind):
                name = f"{kind}.{alias}.type"
                found.append((name, f"{kind}.{alias}.plugin.version", self._find(name, given.get(name))))
        for name, version, named in found:
            error = None if named is None else find_version_error(named, given.get(version))
            if error is not None:
                add_errors(checked, name, [error])
                add_errors(checked, version, [error])

    def _check_converters(self, given: Given, checked: Checked) -> list[tuple[str, Checked]]:
        """The settings of converters that the configuration itself names; those of the worker are the worker's."""
        parts = []
        for name in ("header.converter", "key.converter", "value.converter"):
            plugin = self._find(name, given.get(name))
            if plugin is None or checked[name].errors:
                continue
            prefix = f"{name}."
            own = {key.removeprefix(prefix): text for key, text in given.items() if key.startswith(prefix)}
            own.setdefault("converter.type", name.removesuffix(".converter"))
            parts.append((prefix, check_settings(plugin.settings, own)))
        return parts


def _describe_version(plugin: Plugin | None) -> dict[str, Any]:
    version = None if plugin is None else plugin.version
    return {"default": version, "recommend": lambda *_: [] if version is None else [version]}


def _read_aliases(given: Given, kind: str) -> list[str]:
    text = given.get(kind) or ""
    return list(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))


def _check_predicates(given: Given, checked: Checked) -> None:
    predicates = _read_aliases(given, "predicates")
    for alias in _read_aliases(given, "transforms"):
        prefix = f"transforms.{alias}."
        named = given.get(f"{prefix}predicate")
        if f"{prefix}negate" in given and named is None:
            error = (
                f"Config '{prefix}negate' was provided but there is no config '{prefix}predicate' defining a predicate"
                " to be negated."
            )
            add_errors(checked, f"{prefix}type", [error])
        if named is not None and named.strip() not in predicates:
            error = f"Invalid value {named} for configuration {prefix}predicate: predicates does not name it"
            add_errors(checked, f"{prefix}predicate", [error])


def _try_transformations(given: Given, checked: Checked) -> None:
    """Make each transformation whose settings are right one by one: it may still refuse them together."""
    config = {name: text for name, text in given.items() if text is not None}
    for alias in _read_aliases(given, "transforms"):
        prefix = f"transforms.{alias}."
        predicate = f"predicates.{config.get(f'{prefix}predicate', '')}."
        if any(each.errors for name, each in checked.items() if name.startswith((prefix, predicate))):
            continue
        try:
            make_transforms({**config, "transforms": alias})
        except BadConfig as error:
            add_errors(checked, f"{prefix}type", [str(error)])


def _list_topic_creation(given: Given) -> list[Setting]:
    """The settings of the groups of topics to create, if the configuration uses any."""
    if not any(name.startswith(TOPIC_CREATION_PREFIX) for name in given):
        return []
    settings = [
        *embed(topic_creation_settings("default", is_default=True), f"{TOPIC_CREATION_PREFIX}default.", "default")
    ]
    for group in _read_aliases(given, "topic.creation.groups"):
        if group != "default":
            title = f"{TOPIC_CREATION}: {group}"
            settings += embed(
                topic_creation_settings(title, is_default=False), f"{TOPIC_CREATION_PREFIX}{group}.", title
            )
    return settings


def list_errors(parts: list[tuple[str, Checked]]) -> list[str]:
    return [
        error for _, checked in parts for each in sorted(checked.values(), key=_declared_last) for error in each.errors
    ]


def _declared_last(each: CheckedSetting) -> bool:
    return each.setting is not None

"""The transformations of a connector, one after the other, each with its predicate."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from ottla.connect.data.record import Record
from ottla.connect.errors import BadConfig, RecordError
from ottla.connect.settings.definition import Kind, Setting, Settings
from ottla.connect.settings.parsing import parse, parse_value
from ottla.connect.transforms.kinds import PREDICATES, TRANSFORMATIONS, Plugin, find_plugin
from ottla.connect.transforms.predicates import Predicate
from ottla.connect.transforms.transformation import Transformation

STAGE_SETTINGS: Final = Settings(
    (
        Setting(
            "predicate",
            Kind.STRING,
            None,
            "The alias of a predicate used to determine whether to apply this transformation.",
        ),
        Setting("negate", Kind.BOOLEAN, False, "Whether the configured predicate should be negated."),
    )
)
"""What every transformation has besides its own settings."""

Made = TypeVar("Made")


class TransformError(RecordError):
    """A record that a transformation cannot take, with the transformation's class name for the dead letters."""

    def __init__(self, message: str, class_name: str) -> None:
        super().__init__(message)
        self.class_name = class_name

    def __reduce__(self) -> tuple[type["TransformError"], tuple[str, str]]:
        return TransformError, (str(self), self.class_name)


@dataclass(frozen=True)
class Stage:
    alias: str
    class_name: str
    transformation: Transformation
    predicate: Predicate | None = None
    negate: bool = False


class Chain:
    """Survives pickling."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self.stages = tuple(stages)

    def __len__(self) -> int:
        return len(self.stages)

    def apply(self, record: Record) -> Record | None:
        """The record after all transformations; None if it was dropped. TransformError if it cannot be transformed."""
        for stage in self.stages:
            try:
                if stage.predicate is None or stage.predicate.test(record) is not stage.negate:
                    changed = stage.transformation.apply(record)
                    if changed is None:
                        return None
                    record = changed
            except RecordError as error:
                raise TransformError(str(error), stage.class_name) from error
        return record


def make_transforms(config: Mapping[str, str]) -> Chain:
    """The chain of a connector's settings: `transforms`, `transforms.<alias>.type`, `predicates`, ..."""
    aliases = _parse_aliases(config, "transforms")
    predicates = _parse_aliases(config, "predicates")
    return Chain([_make_stage(config, alias, predicates) for alias in aliases])


def _parse_aliases(config: Mapping[str, str], name: str) -> list[str]:
    aliases: list[str] = parse_value(Setting(name, Kind.LIST, [], ""), config.get(name) or "")
    if len(set(aliases)) < len(aliases):
        raise BadConfig(f"Invalid value {config[name]} for configuration {name}: Duplicate alias provided.")
    return aliases


def _make_stage(config: Mapping[str, str], alias: str, predicates: Sequence[str]) -> Stage:
    prefix = f"transforms.{alias}."
    own = _without_prefix(config, prefix)
    found = parse(STAGE_SETTINGS, {name: own.pop(name) for name in ("predicate", "negate") if name in own})
    plugin, transformation = _make(own, prefix, TRANSFORMATIONS)
    name = found["predicate"]
    if name is None:
        if found["negate"]:
            raise BadConfig(
                f"Config '{prefix}negate' was provided but there is no config '{prefix}predicate' defining a predicate "
                "to be negated."
            )
        return Stage(alias, plugin.class_name, transformation)
    if name not in predicates:
        raise BadConfig(f"{prefix}predicate: the predicate {name!r} is not one of `predicates`")
    predicate_prefix = f"predicates.{name}."
    _, predicate = _make(_without_prefix(config, predicate_prefix), predicate_prefix, PREDICATES)
    return Stage(alias, plugin.class_name, transformation, predicate, found["negate"])


def _make(own: Mapping[str, str], prefix: str, plugins: Sequence[Plugin[Made]]) -> tuple[Plugin[Made], Made]:
    if "type" not in own:
        raise BadConfig(f'Missing required configuration "{prefix}type" which has no default value.')
    try:
        plugin = find_plugin(own["type"], plugins)
        return plugin, plugin.make(parse(plugin.settings, own))
    except BadConfig as error:
        raise BadConfig(f"{prefix}*: {error}") from None


def _without_prefix(config: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): text for name, text in config.items() if name.startswith(prefix)}

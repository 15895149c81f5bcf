"""All errors of a configuration at once, in the JSON that Kafka Connect answers validation with.

A `CheckedSetting` is what became of one setting. `describe_setting` and `describe_value` write the two halves of an
entry in `configs`; `report` writes the whole answer.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ottla.connect.settings.checks import refuse_unsupported
from ottla.connect.settings.definition import REQUIRED, Importance, Kind, Setting, Settings
from ottla.connect.settings.parsing import describe_error, read_setting, write_value

FindClass = Callable[[Setting, str], str | None]
"""The full name of a class that a setting names; None if there is no such class."""


@dataclass
class CheckedSetting:
    name: str
    setting: Setting | None
    """None: the setting is not declared, and still wrong."""
    value: Any = None
    errors: list[str] = field(default_factory=list)
    recommended: Sequence[Any] = ()
    is_visible: bool = True


Checked = dict[str, CheckedSetting]


def check_settings(settings: Settings, given: Mapping[str, str | None], find_class: FindClass | None = None) -> Checked:
    """Parse and check every declared setting. A value of None in `given` is a null that somebody sent."""
    checked: Checked = {}
    for setting in settings.settings:
        value, errors = read_setting(setting, given)
        if setting.kind is Kind.CLASS and value is not None and find_class is not None and not errors:
            found = find_class(setting, value)
            if found is None:
                errors.append(describe_error(setting, value, f"Class {value} could not be found."))
            value = found
        checked[setting.name] = CheckedSetting(setting.name, setting, value, errors)
    values = {name: each.value for name, each in checked.items()}
    for each in checked.values():
        assert each.setting is not None
        if each.setting.recommend is not None:
            each.recommended = each.setting.recommend(each.name, values)
        if each.setting.is_visible is not None:
            each.is_visible = each.setting.is_visible(each.name, values)
    if settings.refuse is not None and not any(each.errors for each in checked.values()):
        everything = {name: text for name, text in given.items() if text is not None} | values
        for name, wrong in settings.refuse(everything).items():
            add_errors(checked, name, wrong)
    for name, error in refuse_unsupported(settings, given).items():
        add_errors(checked, name, [error])
    return checked


def add_errors(checked: Checked, name: str, errors: Iterable[str]) -> None:
    checked.setdefault(name, CheckedSetting(name, None)).errors.extend(errors)


def embed(settings: Settings, prefix: str, group: str, first_order: int = 0) -> tuple[Setting, ...]:
    """The settings of a part of a connector, such as one transformation, among those of the connector.

    They are ordered as in Kafka: by group and order, then required ones first, by importance and by name.
    """
    importances = list(Importance)
    groups = list(dict.fromkeys(setting.group for setting in settings.settings if setting.group is not None))
    ordered = sorted(
        settings.settings,
        key=lambda each: (
            -1 if each.group is None else groups.index(each.group),
            each.order,
            each.default is not REQUIRED,
            importances.index(each.importance),
            each.name,
        ),
    )
    return tuple(
        replace(
            setting,
            name=prefix + setting.name,
            group=f"{group}: {setting.group}" if setting.group else group,
            order=first_order + position,
            display_name=setting.display_name or setting.name,
            dependents=[prefix + name for name in setting.dependents],
        )
        for position, setting in enumerate(ordered)
    )


def describe_setting(setting: Setting, prefix: str = "") -> dict[str, Any]:
    """Kafka Connect's ConfigKeyInfo."""
    return {
        "name": prefix + setting.name,
        "type": setting.kind.value,
        "required": setting.default is REQUIRED,
        "default_value": None if setting.default is REQUIRED else write_value(setting.default),
        "importance": setting.importance.value,
        "documentation": setting.doc,
        "group": setting.group,
        "order_in_group": setting.order,
        "width": setting.width.value,
        "display_name": setting.display_name or setting.name,
        "dependents": list(setting.dependents),
    }


def describe_value(checked: CheckedSetting, prefix: str = "") -> dict[str, Any]:
    """Kafka Connect's ConfigValueInfo."""
    is_secret = checked.setting is not None and checked.setting.kind is Kind.PASSWORD
    return {
        "name": prefix + checked.name,
        "value": "[hidden]" if is_secret and checked.value is not None else write_value(checked.value),
        "recommended_values": [write_value(value) for value in checked.recommended],
        "errors": list(checked.errors),
        "visible": checked.is_visible,
    }


def report(name: str, parts: Iterable[tuple[str, Checked]]) -> dict[str, Any]:
    """Kafka Connect's ConfigInfos, of several checked groups of settings, each with the prefix of its names."""
    groups: dict[str, None] = {}
    configs = []
    count = 0
    for prefix, checked in parts:
        for each in sorted(checked.values(), key=lambda one: one.setting is not None):
            definition = None if each.setting is None else describe_setting(each.setting, prefix)
            if each.setting is not None and each.setting.group is not None:
                groups[each.setting.group] = None
            configs.append({"definition": definition, "value": describe_value(each, prefix)})
            count += len(each.errors)
    return {"name": name, "error_count": count, "groups": list(groups), "configs": configs}

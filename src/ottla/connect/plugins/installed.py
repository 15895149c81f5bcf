"""All plug-ins of a worker: what the worker and the REST server ask them.

Whatever a configuration gets from a config provider, and the values of its passwords, are added to the worker's
redactor as soon as the configuration is looked at.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

from ottla.connect.connector import Connector
from ottla.connect.errors import BadConfig, ConnectError
from ottla.connect.plugins.built_in import list_built_in
from ottla.connect.plugins.checking import ConfigurationChecker, find_version_error, list_errors
from ottla.connect.plugins.loading import find_installed, load_plugin_path
from ottla.connect.plugins.overrides import OverridePolicy
from ottla.connect.plugins.registry import CONNECTORS, Plugin, PluginType, Registry
from ottla.connect.running.making import RunConfig
from ottla.connect.settings.connectors import CONNECTOR_CLASS, CONNECTOR_VERSION, SINK_SETTINGS, SOURCE_SETTINGS
from ottla.connect.settings.definition import Kind
from ottla.connect.settings.providers import Providers
from ottla.connect.settings.redaction import SECRET_NAMES, Redactor, find_parts, hide_secrets, is_reference
from ottla.connect.settings.validation import Checked, add_errors, describe_setting, report
from ottla.connect.worker.runs import ConnectorSpec

_ADVICE: Final = (
    "You can also find the above list of errors at the endpoint `/connector-plugins/{connectorType}/config/validate`"
)


_REFUSED: Final = {
    "iceberg": "tables of Iceberg cannot be written or read; tables of Delta Lake can be written (ottla.DeltaLakeSink)",
    "delta": "tables of Delta Lake can be written (ottla.DeltaLakeSink), and not be read as a source",
}
"""Words in the names of connectors that many people have, and why they are refused."""


class UnknownPlugin(ConnectError):
    """There is no plug-in of this name."""


class InstalledPlugins:
    """Fulfils the protocol `Plugins` of the herder."""

    def __init__(
        self, worker: Mapping[str, str], redactor: Redactor | None = None, registry: Registry | None = None
    ) -> None:
        """BadConfig if the worker's properties name plug-ins, providers or a policy that do not exist."""
        self.redactor = Redactor() if redactor is None else redactor
        self.registry = registry or Registry([*list_built_in(), *load_plugin_path(worker.get("plugin.path") or "")])
        self.providers = Providers(worker)
        self._checker = ConfigurationChecker(self.registry, OverridePolicy(worker), worker)

    def list_plugins(self, *, connectors_only: bool) -> list[dict[str, str]]:
        """The answer to `GET /connector-plugins`."""
        return [
            {"class": plugin.class_name, "type": plugin.type.value, "version": plugin.version}
            for plugin in self.registry
            if plugin.type in CONNECTORS or not connectors_only
        ]

    def describe(self, name: str, version: str | None = None) -> list[dict[str, Any]]:
        """The declared settings of a plug-in, and for a connector those that every connector has."""
        plugin = self.registry.find(name) or find_installed(name)
        if plugin is None:
            raise UnknownPlugin(f"Unknown plugin {name}.")
        if error := find_version_error(plugin, version):
            raise BadConfig(error)
        settings = {setting.name: setting for setting in plugin.settings.settings}
        if plugin.type in CONNECTORS:
            base = SOURCE_SETTINGS if plugin.type is PluginType.SOURCE else SINK_SETTINGS
            for setting in base.settings:
                settings.setdefault(setting.name, setting)
        described = [describe_setting(setting) for setting in settings.values()]
        for each in described:
            if each["name"] == CONNECTOR_VERSION:
                each["default_value"] = plugin.version
        return described

    def validate(self, config: Mapping[str, str | None]) -> dict[str, Any]:
        """The answer to `PUT /connector-plugins/{name}/config/validate`. BadConfig if it names no connector."""
        found = report(config.get(CONNECTOR_CLASS) or "", self._check(config))
        redacted: dict[str, Any] = self.redactor.redact_document(found)  # names of transforms may be references too
        return redacted

    def check(self, config: Mapping[str, str | None]) -> None:
        """BadConfig, with every error in its message, if a connector cannot work with the configuration."""
        errors = list_errors(self._check(config))
        if errors:
            first = f"Connector configuration is invalid and contains the following {len(errors)} error(s):"
            raise BadConfig(self.redactor.redact("\n".join((first, *errors, _ADVICE))))

    def find_type(self, config: Mapping[str, str]) -> Literal["source", "sink", "unknown"]:
        try:
            plugin = self.find_plugin(config)
        except BadConfig:
            return "unknown"
        return "source" if plugin.type is PluginType.SOURCE else "sink"

    def find_version(self, config: Mapping[str, str]) -> str | None:
        try:
            return self.find_plugin(config).version
        except BadConfig:
            return None

    def find_class(self, config: Mapping[str, str]) -> type[Connector]:
        """The class of a connector. BadConfig if there is none, or if it cannot be imported."""
        found: type[Connector] = self.find_plugin(config).load()
        return found

    def make_connector(self, spec: ConnectorSpec) -> Connector:
        """The connector, not started. BadConfig if its configuration is not valid."""
        resolved = self.resolve(spec.config)
        return RunConfig.read(spec, resolved, self.find_class(resolved)).make_connector()

    def find_plugin(self, config: Mapping[str, str | None]) -> Plugin:
        """The connector that a configuration names. BadConfig if it names none."""
        name = (config.get(CONNECTOR_CLASS) or "").strip()
        if not name:
            shown = ", ".join(f"{key}={text}" for key, text in self.hide(config).items())
            raise BadConfig(f"Connector config {{{shown}}} contains no connector type")
        plugin = self.registry.find(name, *CONNECTORS) or find_installed(name)
        if plugin is None:
            reason = next((why for word, why in _REFUSED.items() if word in name.lower()), None)
            if reason is not None:
                raise BadConfig(f"{name} is not supported: {reason}")
            known = ", ".join(each.class_name for each in self.registry.of_types(*CONNECTORS))
            raise BadConfig(
                f"Failed to find any class that implements Connector and which name matches {name},"
                f" available connectors are: {known}"
            )
        return plugin

    def resolve(self, config: Mapping[str, str]) -> dict[str, str]:
        """The configuration without references to config providers. BadConfig if one cannot be resolved."""
        resolved, secrets = self.providers.resolve_or_fail(config)
        self.redactor.add(secrets)
        self._remember_secrets(resolved)
        return resolved

    def hide(self, config: Mapping[str, str | None]) -> dict[str, str]:
        """The configuration as it may be shown: passwords are hidden, references to config providers are not."""
        known = {name: "null" if text is None else text for name, text in config.items()}
        return hide_secrets(known, self._find_secret_names(known))

    def _check(self, config: Mapping[str, str | None]) -> list[tuple[str, Checked]]:
        resolved = self.providers.resolve(config)
        self.redactor.add(resolved.secrets)
        self._remember_secrets(resolved.config)
        parts = self._checker.check(self.find_plugin(resolved.config), resolved.config)
        for name, error in resolved.errors.items():
            add_errors(next((checked for _, checked in parts if name in checked), parts[0][1]), name, [error])
        for _, checked in parts:
            for each in checked.values():
                if (text := resolved.config.get(each.name)) != config.get(each.name) and each.value is not None:
                    each.value = config.get(each.name) if is_reference(config.get(each.name)) else self._redact(text)
                each.errors = [self.redactor.redact(error) for error in each.errors]
        return parts

    def _redact(self, text: str | None) -> str | None:
        return None if text is None else self.redactor.redact(text)

    def _remember_secrets(self, config: Mapping[str, str | None]) -> None:
        names = self._find_secret_names(config)
        for name, text in config.items():
            if text is not None:
                self.redactor.add({text} if name in names and not is_reference(text) else find_parts(text))

    def _find_secret_names(self, config: Mapping[str, str | None]) -> set[str]:
        """Declared passwords, and whatever is not declared and named like one."""
        plugin = self.registry.find((config.get(CONNECTOR_CLASS) or "").strip(), *CONNECTORS)
        declared = {} if plugin is None else {each.name: each.kind for each in plugin.settings.settings}
        return {
            name
            for name in config
            if (declared[name] is Kind.PASSWORD if name in declared else SECRET_NAMES.search(name) is not None)
        }

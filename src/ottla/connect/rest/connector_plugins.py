"""/connector-plugins: what is installed, which settings it has, and whether a configuration is right."""

from ottla.connect.errors import BadConfig
from ottla.connect.plugins.installed import InstalledPlugins
from ottla.connect.rest.bodies import read_config, read_object
from ottla.connect.rest.routing import Answer, Call, Resource, RestError, answer
from ottla.connect.settings.connectors import CONNECTOR_CLASS

_SUFFIX = "Connector"


class PluginEndpoints:
    def __init__(self, plugins: InstalledPlugins) -> None:
        self._plugins = plugins

    def list_resources(self) -> list[Resource]:
        return [
            Resource("/connector-plugins", {"GET": self.list}),
            Resource("/connector-plugins/{name}/config", {"GET": self.describe}),
            Resource("/connector-plugins/{name}/config/validate", {"PUT": self.validate}),
        ]

    def list(self, call: Call) -> Answer:
        return answer(self._plugins.list_plugins(connectors_only=call.is_set("connectorsOnly", default=True)))

    def describe(self, call: Call) -> Answer:
        return answer(self._plugins.describe(call.names["name"], call.read_parameter("version", "") or None))

    def validate(self, call: Call) -> Answer:
        name = call.names["name"]
        config = read_config(read_object(call.body), "The request body")
        included = config.get(CONNECTOR_CLASS)
        if included is not None and not _prune(included).endswith(_prune(name)):
            raise RestError(400, f"Included connector type {included} does not match request type {name}")
        try:
            return answer(self._plugins.validate(config))
        except BadConfig as error:
            raise RestError(500, str(error)) from None  # Kafka Connect's status for a class that it does not have


def _prune(name: str) -> str:
    return name.removesuffix(_SUFFIX) or name

"""A whole worker: plug-ins, REST server, herder and the SparkContext that its connectors share."""

import socket
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ottla.connect.plugins.installed import InstalledPlugins
from ottla.connect.rest.listeners import read_rest_options
from ottla.connect.rest.server import RestServer
from ottla.connect.running.contexts import SharedContext
from ottla.connect.running.run import Run, RunEnvironment
from ottla.connect.settings.redaction import Redactor
from ottla.connect.transforms.chain import make_transforms
from ottla.connect.worker.herder import BadRequest, ConnectorMetrics
from ottla.connect.worker.properties import OFFSETS_TOPIC
from ottla.connect.worker.runs import ConnectorSpec, StatusListener
from ottla.connect.worker.standalone import ConnectorFile
from ottla.connect.worker.starting import make_distributed_herder, make_standalone_herder

if TYPE_CHECKING:
    from pyspark import SparkContext

_APP_NAME: Final = "ottla-connect"


class WorkerProcess:
    """Listens, joins its group and runs connectors after `start`; `close` stops all of it."""

    def __init__(
        self,
        properties: Mapping[str, str],
        *,
        is_distributed: bool,
        redactor: Redactor | None = None,
        spark: "SparkContext | None" = None,
    ) -> None:
        """BadConfig if a property is not valid. Without a SparkContext, it makes one."""
        given = {"offset.storage.topic": OFFSETS_TOPIC, **properties} if not is_distributed else dict(properties)
        self._plugins = InstalledPlugins(given, redactor)
        given, secrets = self._plugins.providers.resolve_or_fail(given)
        self._plugins.redactor.add(secrets)
        self._server = RestServer(read_rest_options(given))
        self._spark = SharedContext(_APP_NAME, given, spark)
        environment = RunEnvironment(
            self._spark.get,
            self._plugins.find_class,
            lambda config: make_transforms(config) or None,
            self._plugins.providers,
            self._plugins.redactor,
        )

        def make_run(spec: ConnectorSpec, listener: StatusListener) -> Run:
            return Run(environment, spec, listener)

        make_herder = make_distributed_herder if is_distributed else make_standalone_herder
        try:
            self._herder = make_herder(given, self._find_id(given), self._plugins, make_run)
        except Exception:
            self._server.stop()
            raise

    @property
    def port(self) -> int:
        return self._server.ports[0]

    @property
    def url(self) -> str:
        """Of the REST API."""
        return self._server.url

    def start(self, connectors: Sequence[ConnectorFile] = ()) -> None:
        """With these connectors besides those that are in the config topic. BadRequest names one that is not valid."""
        self._spark.begin()
        self._herder.start()
        self._server.start(self._herder, self._plugins)
        for connector in connectors:
            try:
                self._herder.create_connector(connector.name, connector.config, connector.initial_state)
            except BadRequest as error:
                raise BadRequest(f"{connector.name}: {error}") from None

    def list_metrics(self) -> Mapping[str, ConnectorMetrics]:
        return self._herder.list_metrics()

    def configure(self, connectors: Mapping[str, Mapping[str, str]]) -> None:
        """Create connectors, and change those that have another configuration. BadRequest names one that is not
        valid."""
        for name, config in connectors.items():
            try:
                if name in self._herder.list_connectors() and self._herder.get_connector(name).config == config:
                    continue
                self._herder.put_config(name, config)
            except BadRequest as error:
                raise BadRequest(f"{name}: {error}") from None

    def close(self) -> None:
        self._server.stop()
        self._herder.close()

    def _find_id(self, properties: Mapping[str, str]) -> str:
        """host:port under which other people reach the REST server."""
        host = properties.get("rest.advertised.host.name") or self._server.host or socket.gethostname()
        return f"{host}:{properties.get('rest.advertised.port') or self.port}"

"""What the worker says about itself: /, /health and /admin/loggers."""

from ottla.connect.rest.bodies import read_config, read_object
from ottla.connect.rest.documents import show_logger
from ottla.connect.rest.routing import Answer, Call, Resource, RestError, answer
from ottla.connect.worker.herder import Herder

_STATUSES = {"healthy": 200, "starting": 503, "unhealthy": 500}
_LEVELS = ("OFF", "FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE", "ALL")


class WorkerEndpoints:
    def __init__(self, herder: Herder) -> None:
        self._herder = herder

    def list_resources(self) -> list[Resource]:
        return [
            Resource("/", {"GET": self.describe}, takes_json=False),
            Resource("/health", {"GET": self.get_health}, takes_json=False),
        ]

    def list_admin_resources(self) -> list[Resource]:
        return [
            Resource("/admin/loggers", {"GET": self.list_loggers}),
            Resource("/admin/loggers/{logger}", {"GET": self.get_logger, "PUT": self.set_logger}),
        ]

    def describe(self, call: Call) -> Answer:
        found = self._herder.get_cluster_info()
        return answer({"version": found.version, "commit": found.commit, "kafka_cluster_id": found.kafka_cluster_id})

    def get_health(self, call: Call) -> Answer:
        found = self._herder.get_health()
        return answer({"status": found.status, "message": found.message}, _STATUSES[found.status])

    def list_loggers(self, call: Call) -> Answer:
        found = self._herder.list_loggers()
        return answer({name: show_logger(found[name]) for name in sorted(found)})

    def get_logger(self, call: Call) -> Answer:
        return answer(show_logger(self._herder.get_logger(call.names["logger"])))

    def set_logger(self, call: Call) -> Answer:
        level = read_config(read_object(call.body), "The request body").get("level")
        if level is None:
            raise RestError(400, "Desired 'level' parameter was not specified in request.")
        if level.upper() not in _LEVELS:
            raise RestError(404, f"invalid log level '{level}'.")
        whole_cluster = call.read_parameter("scope", "worker").lower() == "cluster"
        changed = self._herder.set_logger(call.names["logger"], level.upper(), whole_cluster=whole_cluster)
        return Answer(204) if whole_cluster else answer(list(changed))

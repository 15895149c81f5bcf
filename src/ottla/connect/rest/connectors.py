"""/connectors: create, change, ask, pause, restart and delete connectors."""

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from ottla.connect.plugins.installed import InstalledPlugins
from ottla.connect.rest.bodies import read_config, read_creation, read_object, read_offsets
from ottla.connect.rest.documents import Documents, show_offset
from ottla.connect.rest.routing import Answer, Call, Resource, RestError, answer
from ottla.connect.settings.connectors import NAME
from ottla.connect.worker.herder import Herder, NotFound, TaskId

_TRACKING_DISABLED = "Topic tracking is disabled."
_RESET_DISABLED = "Topic tracking reset is disabled."


class ConnectorEndpoints:
    def __init__(
        self, herder: Herder, plugins: InstalledPlugins, *, tracks_topics: bool = True, resets_topics: bool = True
    ) -> None:
        self._herder = herder
        self._plugins = plugins
        self._documents = Documents(plugins)
        self._tracks_topics = tracks_topics
        self._resets_topics = resets_topics

    def list_resources(self) -> list[Resource]:
        name = "/connectors/{name}"
        return [
            Resource("/connectors", {"GET": self.list, "POST": self.create}),
            Resource(name, {"GET": self.get, "DELETE": self.delete}),
            Resource(f"{name}/config", {"GET": self.get_config, "PUT": self.put_config, "PATCH": self.patch_config}),
            Resource(f"{name}/status", {"GET": self.get_status}),
            Resource(f"{name}/topics", {"GET": self.get_topics}),
            Resource(f"{name}/topics/reset", {"PUT": self.reset_topics}),
            Resource(f"{name}/restart", {"POST": self.restart}),
            Resource(f"{name}/pause", {"PUT": self.pause}),
            Resource(f"{name}/resume", {"PUT": self.resume}),
            Resource(f"{name}/stop", {"PUT": self.stop}),
            Resource(f"{name}/tasks", {"GET": self.list_tasks}),
            Resource(f"{name}/tasks/{{task}}/status", {"GET": self.get_task_status}),
            Resource(f"{name}/tasks/{{task}}/restart", {"POST": self.restart_task}),
            Resource(
                f"{name}/offsets",
                {"GET": self.get_offsets, "PATCH": self.alter_offsets, "DELETE": self.reset_offsets},
            ),
        ]

    def list(self, call: Call) -> Answer:
        names = self._herder.list_connectors()
        wanted = [value for key, value in call.query if key == "expand"]
        if not wanted:
            return answer(list(names))
        shows: dict[str, Callable[[str], Any]] = {
            "status": lambda name: self._documents.show_status(self._herder.get_status(name)),
            "info": lambda name: self._documents.show_info(self._herder.get_connector(name)),
        }
        found = {}
        for name in names:
            try:
                found[name] = {expansion: shows[expansion](name) for expansion in wanted if expansion in shows}
            except NotFound:
                continue  # it was deleted meanwhile
        return answer(found)

    def create(self, call: Call) -> Answer:
        name, given, state = read_creation(call.body)
        config = self._read_named(name, given)
        info = self._herder.create_connector(name, config, state)
        return answer(self._documents.show_info(info), 201, Location=_locate(call, name))

    def get(self, call: Call) -> Answer:
        return answer(self._documents.show_info(self._herder.get_connector(call.names["name"])))

    def delete(self, call: Call) -> Answer:
        self._herder.delete_connector(call.names["name"])
        return Answer(204)

    def get_config(self, call: Call) -> Answer:
        return answer(self._documents.show_config(self._herder.get_connector(call.names["name"]).config))

    def put_config(self, call: Call) -> Answer:
        name = call.names["name"]
        given = self._restore(name, read_config(read_object(call.body), "The request body"))
        is_new, info = self._herder.put_config(name, self._read_named(name, given))
        if not is_new:
            return answer(self._documents.show_info(info))
        return answer(self._documents.show_info(info), 201, Location=_locate(call, name))

    def patch_config(self, call: Call) -> Answer:
        name = call.names["name"]
        changes = self._restore(name, read_config(read_object(call.body), "The request body"))
        return answer(self._documents.show_info(self._herder.patch_config(name, changes)))

    def get_status(self, call: Call) -> Answer:
        return answer(self._documents.show_status(self._herder.get_status(call.names["name"])))

    def get_topics(self, call: Call) -> Answer:
        if not self._tracks_topics:
            raise RestError(403, _TRACKING_DISABLED)
        name = call.names["name"]
        return answer({name: {"topics": list(self._herder.get_topics(name))}})

    def reset_topics(self, call: Call) -> Answer:
        if not self._tracks_topics or not self._resets_topics:
            raise RestError(403, _RESET_DISABLED if self._tracks_topics else _TRACKING_DISABLED)
        self._herder.reset_topics(call.names["name"])
        return Answer(202)

    def restart(self, call: Call) -> Answer:
        """Without parameters the answer has no body, for clients from before there were any."""
        include_tasks, only_failed = call.is_set("includeTasks"), call.is_set("onlyFailed")
        status = self._herder.restart(call.names["name"], include_tasks=include_tasks, only_failed=only_failed)
        if not include_tasks and not only_failed:
            return Answer(204)
        return answer(self._documents.show_status(status), 202)

    def pause(self, call: Call) -> Answer:
        self._herder.pause(call.names["name"])
        return Answer(202)

    def resume(self, call: Call) -> Answer:
        self._herder.resume(call.names["name"])
        return Answer(202)

    def stop(self, call: Call) -> Answer:
        self._herder.stop(call.names["name"])
        return Answer(204)

    def list_tasks(self, call: Call) -> Answer:
        return answer(self._documents.show_tasks([*self._herder.list_tasks(call.names["name"])]))

    def get_task_status(self, call: Call) -> Answer:
        task = TaskId(call.names["name"], call.read_number("task"))
        return answer(self._documents.show_task_status(self._herder.get_task_status(task)))

    def restart_task(self, call: Call) -> Answer:
        self._herder.restart_task(TaskId(call.names["name"], call.read_number("task")))
        return Answer(204)

    def get_offsets(self, call: Call) -> Answer:
        offsets = self._herder.get_offsets(call.names["name"])
        return answer({"offsets": [show_offset(offset) for offset in offsets]})

    def alter_offsets(self, call: Call) -> Answer:
        return answer({"message": self._herder.alter_offsets(call.names["name"], read_offsets(call.body))})

    def reset_offsets(self, call: Call) -> Answer:
        return answer({"message": self._herder.reset_offsets(call.names["name"])})

    def _restore(self, name: str, given: dict[str, str | None]) -> dict[str, str | None]:
        try:
            return self._documents.restore(given, self._herder.get_connector(name).config)
        except NotFound:
            return given

    def _read_named(self, name: str, given: dict[str, str | None]) -> dict[str, str]:
        """The configuration with its name. One with nulls is refused with all that is wrong with it."""
        included = given.setdefault(NAME, name)
        if included is not None and included != name:
            raise RestError(
                400,
                f"Connector name configuration ({included}) doesn't match connector name in the URL ({name})",
            )
        if None in given.values():
            self._plugins.check(given)
        return {key: text for key, text in given.items() if text is not None}


def _locate(call: Call, name: str) -> str:
    return f"{call.base_url}/connectors/{quote(name, safe='')}"

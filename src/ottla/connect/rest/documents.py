"""What the worker says, as the JSON of Kafka Connect's answers. Nothing secret is in it.

A configuration is shown with its passwords hidden. Somebody who gets one, changes it and sends it back sends the hidden
values too: `restore` puts the stored ones in their places.
"""

from collections.abc import Mapping
from typing import Any

from ottla.connect.plugins.installed import InstalledPlugins
from ottla.connect.worker.herder import (
    ConnectorInfo,
    ConnectorOffset,
    ConnectorState,
    ConnectorStatus,
    LoggerLevel,
    TaskInfo,
    TaskStatus,
)


class Documents:
    def __init__(self, plugins: InstalledPlugins) -> None:
        self._plugins = plugins

    def show_config(self, config: Mapping[str, str]) -> dict[str, str]:
        return self._plugins.hide(config)

    def restore(self, given: Mapping[str, str | None], stored: Mapping[str, str]) -> dict[str, str | None]:
        shown = self._plugins.hide(stored)
        return {name: stored[name] if name in stored and text == shown[name] else text for name, text in given.items()}

    def show_info(self, info: ConnectorInfo) -> dict[str, Any]:
        return {
            "name": info.name,
            "config": self.show_config(info.config),
            "tasks": [{"connector": task.connector, "task": task.task} for task in info.tasks],
            "type": info.type,
        }

    def show_tasks(self, tasks: list[TaskInfo]) -> list[dict[str, Any]]:
        return [
            {
                "id": {"connector": task.id.connector, "task": task.id.task},
                "config": self.show_config(task.config),
            }
            for task in tasks
        ]

    def show_status(self, status: ConnectorStatus) -> dict[str, Any]:
        return {
            "name": status.name,
            "connector": self._show_state(status.connector),
            "tasks": [self.show_task_status(task) for task in sorted(status.tasks, key=lambda task: task.id)],
            "type": status.type,
        }

    def show_task_status(self, status: TaskStatus) -> dict[str, Any]:
        return {"id": status.id, **self._show_state(status)}

    def _show_state(self, state: ConnectorState) -> dict[str, Any]:
        shown = {"state": state.state.value, "worker_id": state.worker_id}
        if state.trace is not None:
            shown["trace"] = self._plugins.redactor.redact(state.trace)
        if state.version is not None:
            shown["version"] = state.version
        return shown


def show_offset(offset: ConnectorOffset) -> dict[str, Any]:
    return {"partition": dict(offset.partition), "offset": None if offset.offset is None else dict(offset.offset)}


def show_logger(level: LoggerLevel) -> dict[str, Any]:
    return {"level": level.level, "last_modified": level.last_modified}

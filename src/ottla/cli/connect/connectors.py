"""`ottla connect list|status|create|pause|resume|stop|restart|delete`."""

import argparse
from typing import Any

from ottla.cli.connect.asking import ask, path_of, read_configuration
from ottla.cli.output import JSON, show_json, show_rows, show_table


def run_list(options: argparse.Namespace) -> int:
    found = ask(options.url, "GET", "/connectors?expand=status&expand=info")
    rows = [_describe(name, found[name]) for name in sorted(found)]
    show_rows(options.format, ["connector", "type", "state", "tasks", "worker", "class"], rows)
    return 0


def _describe(name: str, found: dict[str, Any]) -> list[object]:
    status = found.get("status", {})
    states = [task["state"] for task in status.get("tasks", [])]
    running = f"{states.count('RUNNING')}/{len(states)}" if states else "0"
    connector = status.get("connector", {})
    class_name = found.get("info", {}).get("config", {}).get("connector.class", "")
    return [
        name,
        status.get("type"),
        _sum_up([connector.get("state", "UNASSIGNED"), *states]),
        running,
        connector.get("worker_id"),
        class_name.rpartition(".")[2],
    ]


def _sum_up(states: list[str]) -> str:
    """One word for a connector and its tasks: a failure of a task is one of the connector."""
    return "failed" if "FAILED" in states else states[0].lower()


def run_status(options: argparse.Namespace) -> int:
    status = ask(options.url, "GET", path_of(options.name, "status"))
    if options.format == JSON:
        show_json(status)
        return 0
    parts = [("connector", status["connector"]), *((f"task {task['id']}", task) for task in status["tasks"])]
    rows = [[what, part["state"].lower(), part["worker_id"], _first_line(part)] for what, part in parts]
    show_table([status["type"], "state", "worker", "cause"], rows)
    return 0


def _first_line(part: dict[str, Any]) -> str | None:
    trace: str = part.get("trace") or ""
    return trace.splitlines()[0] if trace else None


def run_create(options: argparse.Namespace) -> int:
    name, config, state = read_configuration(options.file, options.settings)
    known = ask(options.url, "GET", "/connectors")
    if name in known:
        ask(options.url, "PUT", path_of(name, "config"), config)
        print(f"changed {name}")
        return 0
    request = {"name": name, "config": config, **({"initial_state": state} if state else {})}
    ask(options.url, "POST", "/connectors", request)
    print(f"created {name}")
    return 0


def run_pause(options: argparse.Namespace) -> int:
    ask(options.url, "PUT", path_of(options.name, "pause"))
    print(f"paused {options.name}")
    return 0


def run_resume(options: argparse.Namespace) -> int:
    ask(options.url, "PUT", path_of(options.name, "resume"))
    print(f"resumed {options.name}")
    return 0


def run_stop(options: argparse.Namespace) -> int:
    ask(options.url, "PUT", path_of(options.name, "stop"))
    print(f"stopped {options.name}")
    return 0


def run_restart(options: argparse.Namespace) -> int:
    flags = f"includeTasks=true&onlyFailed={str(options.only_failed).lower()}"
    ask(options.url, "POST", f"{path_of(options.name, 'restart')}?{flags}")
    print(f"restarting {options.name}")
    return 0


def run_delete(options: argparse.Namespace) -> int:
    ask(options.url, "DELETE", path_of(options.name))
    print(f"deleted {options.name}")
    return 0

"""Apache Kafka Connect 4.3.1 and a worker of ours are sent the same calls: the answers are the same.

Both are distributed workers on one broker of ours, with the file connectors. What has to differ is masked: versions,
ports, ids of clusters, texts of documentation, and the Java classes in messages. For a body that cannot be read only
the status is compared, because Kafka's message is that of a Java library.
"""

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.connect.serving import WorkerProcess
from ottla.testing import LocalBroker
from tests.connect.apache_connect import await_health, make_properties, run_apache_connect, send
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long

JSON = {"Content-Type": "application/json"}
ONLY_STATUS = "only the status"
VERSION_FIELDS = ("default_value", "value", "recommended_values", "documentation")


class Both:
    def __init__(self, theirs: int, ours: int) -> None:
        self.ports = {"Apache": theirs, "Ottla": ours}

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        raw: bytes | None = None,
        only_status: bool = False,
        **headers: str,
    ) -> Any:
        """The same answer of both, masked."""
        answers = {}
        content = raw if body is None else json.dumps(body).encode()
        given = {
            **(JSON if content is not None else {}),
            **{key.replace("_", "-"): text for key, text in headers.items()},
        }
        for name, port in self.ports.items():
            status, document, found = send(port, method, path, content, given)
            location = found.get("location", "").replace(f":{port}", ":PORT")
            answers[name] = (status, ONLY_STATUS if only_status else mask(document, port), location)
        different = find_differences(answers["Ottla"], answers["Apache"])
        assert not different, (method, path, body, different)
        return answers["Ottla"][:2]

    def await_both(self, path: str, is_there: Callable[[Any], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        for name, port in self.ports.items():
            while not is_there((answer := send(port, "GET", path))[1]):
                assert time.monotonic() < deadline, (name, answer)
                time.sleep(0.05)


def find_differences(ours: Any, theirs: Any, where: str = "") -> list[tuple[str, Any, Any]]:
    """Where two documents differ, with both values. Entries that have names are compared by name."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        pairs = [(key, ours.get(key, "absent"), theirs.get(key, "absent")) for key in {**ours, **theirs}]
    elif isinstance(ours, list | tuple) and isinstance(theirs, list | tuple):
        mine, other = _index(ours), _index(theirs)
        pairs = [(str(key), mine.get(key, "absent"), other.get(key, "absent")) for key in {**mine, **other}]
    else:
        return [] if ours == theirs else [(where, ours, theirs)]
    return [each for key, mine, other in pairs for each in find_differences(mine, other, f"{where}/{key}")]


def _index(entries: Sequence[Any]) -> dict[Any, Any]:
    if not all(isinstance(each, dict) and ("value" in each or "name" in each) for each in entries):
        return dict(enumerate(entries))
    return {each["value"]["name"] if "value" in each else each["name"]: each for each in entries}


def mask(document: Any, port: int) -> Any:
    match document:
        case {"name": str() as name} if name.endswith("plugin.version"):
            return {key: value for key, value in document.items() if key not in VERSION_FIELDS}
        case dict():
            return {key: _mask_entry(key, value, port) for key, value in document.items() if key != "task.class"}
        case list():
            return [mask(each, port) for each in document if not _is_our_own(each)]
        case str():
            return document.replace(f":{port}", ":PORT")
    return document


def _is_our_own(entry: Any) -> bool:
    """A plug-in that Kafka does not have, or that is not in the path of this worker of it: those of MirrorMaker."""
    name = str(entry.get("class", "org.apache.")) if isinstance(entry, dict) else "org.apache."
    return not name.startswith("org.apache.") or name.startswith("org.apache.kafka.connect.mirror.")


def _mask_entry(key: str, value: Any, port: int) -> Any:
    if key in ("version", "commit", "kafka_cluster_id", "documentation", "last_modified"):
        return "masked"
    if key == "recommended_values":
        return [each for each in value if each.startswith("org.apache.")]
    if key == "groups":
        return sorted(value)
    if key == "message":
        value = re.sub(r"\borg\.apache\.kafka\.[\w.]*Exception: ", "", value)
        value = re.sub(r"(available connectors are: ).*", r"\1masked", value)
        return re.sub(r"available versions: .*", "available versions: masked", value)
    return mask(value, port)


@pytest.fixture(scope="module")
def both(
    kafka_tools: None, spark: "SparkSession", broker: LocalBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Both]:
    with run_apache_connect(broker.bootstrap, tmp_path_factory.mktemp("apache")) as theirs:
        worker = WorkerProcess(
            make_properties(broker.bootstrap, 0, "ottla"), is_distributed=True, spark=spark.sparkContext
        )
        worker.start()
        try:
            await_health(worker.port)
            yield Both(theirs, worker.port)
        finally:
            worker.close()


@pytest.fixture
def source(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "in.txt").write_text("a\nb\n")
    return {"connector.class": "FileStreamSource", "topic": "peer-lines", "file": str(tmp_path / "in.txt")}


def has_state(state: str) -> Callable[[Any], bool]:
    """The connector itself, whatever tasks it has: a connector of Kafka that begins paused has none."""
    return lambda status: status.get("connector", {}).get("state") == state


def is_in_state(state: str, tasks: int) -> Callable[[Any], bool]:
    def check(status: Any) -> bool:
        connector, states = status.get("connector", {}), [task["state"] for task in status.get("tasks", [])]
        # Our trace of a running connector says what it waits for until its first batch is done; Kafka's has none.
        is_done = state != "RUNNING" or "trace" not in connector
        return connector.get("state") == state and states == [state] * tasks and is_done

    return check


def test_the_life_of_a_connector(both: Both, source: dict[str, str]) -> None:
    name = "/connectors/life"
    assert both.ask("POST", "/connectors", {"name": " life ", "config": source})[0] == 201
    both.await_both(f"{name}/status", is_in_state("RUNNING", 1))
    both.await_both(name, lambda info: len(info["tasks"]) == 1)
    for path in ("", "/", "/status", "/status/", "/config", "/tasks", "/tasks/0/status", "/tasks/7/status"):
        both.ask("GET", f"{name}{path}")
    both.ask("GET", "/connectors?expand=status&expand=info&expand=other")
    both.ask("GET", "/connectors?expand=other")
    assert both.ask("POST", "/connectors", {"name": "life", "config": source})[0] == 409
    offsets = {"offsets": [{"partition": {"filename": source["file"]}, "offset": {"position": 2}}]}
    both.await_both(f"{name}/offsets", lambda found: [each["offset"] for each in found["offsets"]] == [{"position": 4}])
    both.await_both(f"{name}/topics", lambda found: found["life"]["topics"] == ["peer-lines"])
    both.ask("GET", f"{name}/offsets")
    assert both.ask("PATCH", f"{name}/offsets", offsets)[0] == 400
    assert both.ask("DELETE", f"{name}/offsets")[0] == 400
    assert both.ask("PUT", f"{name}/topics/reset")[0] == 202
    assert both.ask("PUT", f"{name}/pause")[0] == 202
    both.await_both(f"{name}/status", is_in_state("PAUSED", 1))
    both.ask("GET", f"{name}/status")
    assert both.ask("PUT", f"{name}/resume/")[0] == 202
    both.await_both(f"{name}/status", is_in_state("RUNNING", 1))
    assert both.ask("POST", f"{name}/restart?includeTasks=true&onlyFailed=true")[0] == 202
    assert both.ask("POST", f"{name}/restart")[0] == 204
    both.await_both(f"{name}/status", is_in_state("RUNNING", 1))
    assert both.ask("POST", f"{name}/restart?includeTasks=true")[0] == 202
    both.await_both(f"{name}/status", is_in_state("RUNNING", 1))
    assert both.ask("POST", f"{name}/restart?includeTasks=maybe")[0] == 204
    both.await_both(f"{name}/status", is_in_state("RUNNING", 1))
    assert both.ask("POST", f"{name}/tasks/0/restart")[0] == 204
    assert both.ask("POST", f"{name}/tasks/9/restart")[0] == 404
    both.await_both(f"{name}/status", is_in_state("RUNNING", 1))
    assert both.ask("PUT", f"{name}/stop")[0] == 204
    both.await_both(f"{name}/status", is_in_state("STOPPED", 0))
    both.ask("GET", f"{name}/tasks")
    assert both.ask("PATCH", f"{name}/offsets", offsets)[0] == 200
    both.ask("GET", f"{name}/offsets")
    assert both.ask("DELETE", f"{name}/offsets")[0] == 200
    both.ask("GET", f"{name}/offsets")
    assert both.ask("DELETE", name)[0] == 204
    assert both.ask("DELETE", name)[0] == 404


def test_configurations(both: Both, source: dict[str, str]) -> None:
    path = "/connectors/a%20b/config"
    assert both.ask("PUT", path, source)[0] == 201
    both.await_both("/connectors/a%20b", lambda info: len(info["tasks"]) == 1)
    assert both.ask("PUT", path, {**source, "batch.size": 5, "z": 1.50, "y": True})[0] == 200
    assert both.ask("PATCH", path, {"batch.size": "77", "z": None})[0] == 200
    assert both.ask("PATCH", path, {})[0] == 200
    assert both.ask("PATCH", path, {"batch.size": "x"})[0] == 400
    assert both.ask("PUT", path, {**source, "name": "other"})[0] == 400
    both.ask("GET", path)
    assert both.ask("DELETE", "/connectors/a%20b")[0] == 204
    for state in ("STOPPED", "paused"):
        assert both.ask("POST", "/connectors", {"name": state, "config": source, "initial_state": state})[0] == 201
        both.await_both(f"/connectors/{state}/status", has_state(state.upper()))
        assert both.ask("DELETE", f"/connectors/{state}")[0] == 204


@pytest.mark.parametrize(
    "body",
    [
        {"name": "x", "config": {}},
        {"name": "x", "config": {"connector.class": "Nope"}},
        {"name": "x", "config": {"name": "y", "connector.class": "Nope"}},
        {"name": "", "config": {"connector.class": "FileStreamSource"}},
        {"name": "x", "config": {"connector.class": "FileStreamSource", "tasks.max": "abc"}},
        {"name": "x", "config": {"connector.class": "FileStreamSink"}},
        {"name": "x", "config": {"connector.class": "FileStreamSource", "topic": "t", "y": None}},
    ],
    ids=json.dumps,
)
def test_wrong_configurations(both: Both, body: dict[str, Any]) -> None:
    assert both.ask("POST", "/connectors", body)[0] == 400


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"name":"x","foo":1}',
        b'{"name":"x"}',
        b'{"name":"x","config":{"a":{}}}',
        b'{"name":"x","config":{},"initial_state":"foo"}',
    ],
)
def test_bodies_that_cannot_be_read(both: Both, raw: bytes) -> None:
    assert both.ask("POST", "/connectors", raw=raw, only_status=True)[0] == 500


def test_connectors_that_do_not_exist(both: Both) -> None:
    name = "/connectors/none"
    offsets = {"offsets": [{"partition": {"a": 1}, "offset": {"b": 2}}]}
    for path in ("", "/status", "/config", "/tasks", "/tasks/0/status", "/tasks/a/status", "/topics", "/offsets"):
        both.ask("GET", f"{name}{path}")
    for path in ("/pause", "/resume", "/stop", "/topics/reset"):
        both.ask("PUT", f"{name}{path}")
    for path in ("/restart", "/restart?includeTasks=true", "/tasks/0/restart", "/tasks/a/restart"):
        both.ask("POST", f"{name}{path}")
    both.ask("DELETE", name)
    both.ask("DELETE", f"{name}/offsets")
    both.ask("PATCH", f"{name}/offsets", offsets)
    both.ask("PATCH", f"{name}/config", {"a": "b"})
    both.ask("PATCH", f"{name}/offsets", {})
    both.ask("PATCH", f"{name}/offsets", {"offsets": []})
    for wrong in ({"offsets": 7}, {"x": 7}):
        both.ask("PATCH", f"{name}/offsets", wrong, only_status=True)


def test_paths_methods_and_media_types(both: Both) -> None:
    for method, path in (
        ("GET", "/nothing"),
        ("GET", "/connectors/x/tasks-config"),
        ("DELETE", "/connectors"),
        ("PUT", "/"),
        ("TRACE", "/connectors"),
        ("OPTIONS", "/nothing"),
        ("HEAD", "/connectors"),
        ("HEAD", "/connectors/none"),
        ("GET", "/"),
        ("GET", "/health"),
        ("GET", "/connectors/"),
        ("GET", "/connectors/a%20b"),
    ):
        both.ask(method, path)
    for path in ("/connectors//status", "/connectors/a%2Fb", "/connectors/a%09b"):
        both.ask("GET", path, only_status=True)
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        for method, path in (("POST", "/connectors"), ("PUT", "/connectors/x/pause"), ("GET", "/connectors")):
            both.ask(method, path, raw=b"{}", Content_Type=kind)
    for kind in ("application/json; charset=utf-8", "APPLICATION/JSON"):
        both.ask("POST", "/connectors", raw=b'{"name":"x","config":{}}', Content_Type=kind)
    for accept in ("text/plain", "text/html, */*", "application/json"):
        both.ask("GET", "/connectors", Accept=accept)


def test_plugins(both: Both) -> None:
    for path in ("", "/", "?connectorsOnly=true", "?connectorsOnly=false", "?connectorsOnly=other"):
        both.ask("GET", f"/connector-plugins{path}")
    both.ask("GET", "/connector-plugins/Nope/config")
    both.ask("GET", "/connector-plugins/FileStreamSource/config?version=9")
    kinds = ["FileStreamSource", "FileStreamSinkConnector", "org.apache.kafka.connect.json.JsonConverter"]
    listed = send(both.ports["Apache"], "GET", "/connector-plugins?connectorsOnly=false")[1]
    for name in [*kinds, *(each["class"] for each in listed)]:
        both.ask("GET", f"/connector-plugins/{name}/config")


@pytest.mark.parametrize(
    "config",
    [
        {"connector.class": "FileStreamSource", "name": "n", "topic": "t"},
        {"connector.class": "FileStreamSource", "name": None, "foo": None},
        {"connector.class": "FileStreamSource", "tasks.max": "0", "errors.tolerance": "some", "name": "a"},
        {"connector.class": "FileStreamSource", "name": "a", "topic": "t", "key.converter": "JsonConverter"},
        {"connector.class": "FileStreamSource", "name": "a", "topic": "t", "header.converter": "nope"},
        {"connector.class": "FileStreamSource", "name": "a", "topic": "t", "transforms": "x"},
        {
            "connector.class": "FileStreamSource",
            "name": "a",
            "topic": "t",
            "transforms": "x,x",
            "transforms.x.type": "Nope",
        },
        {
            "connector.class": "FileStreamSource",
            "name": "a",
            "topic": "t",
            "transforms": "x",
            "transforms.x.type": "org.apache.kafka.connect.transforms.InsertField$Value",
            "transforms.x.static.field": "f",
            "transforms.x.static.value": "v",
            "transforms.x.negate": "true",
            "predicates": "p",
            "predicates.p.type": "HasHeaderKey",
        },
        {"connector.class": "FileStreamSource", "exactly.once.support": "x", "transaction.boundary.interval.ms": "-3"},
        {"connector.class": "FileStreamSink", "name": "a", "topics": "t,u", "topics.regex": "x"},
        {"connector.class": "FileStreamSink", "name": "a", "topics": "t,u,t", "errors.deadletterqueue.topic.name": "u"},
        {"connector.class": "FileStreamSink", "name": "a", "topics": "t,,u"},
        {
            "connector.class": "FileStreamSink",
            "name": "a",
            "topics.regex": "x.*",
            "errors.deadletterqueue.topic.name": "xy",
        },
    ],
    ids=lambda config: " ".join(f"{key}={value}" for key, value in config.items() if key not in ("name", "topic"))[
        -60:
    ],
)
def test_validation(both: Both, config: dict[str, Any]) -> None:
    kind = config["connector.class"]
    assert both.ask("PUT", f"/connector-plugins/{kind}/config/validate", config)[0] == 200


def test_validation_of_something_else(both: Both) -> None:
    path = "/connector-plugins/FileStreamSource/config/validate"
    both.ask("PUT", path, {"connector.class": "FileStreamSink"})
    both.ask("PUT", path, {})
    both.ask("PUT", "/connector-plugins/Nope/config/validate", {"connector.class": "Nope"})


def test_log_levels(both: Both) -> None:
    both.ask("PUT", "/admin/loggers/a", {"level": "debug"})
    both.ask("PUT", "/admin/loggers/a?scope=other", {"level": "WARN"})
    both.ask("PUT", "/admin/loggers/a?scope=cluster", {"level": "INFO"})
    both.await_both("/admin/loggers/a", lambda found: found["level"] == "INFO")
    both.ask("GET", "/admin/loggers/a")
    both.ask("GET", "/admin/loggers/nothing.of.this.name")
    for body in ({}, {"level": None}, {"level": "x"}):
        both.ask("PUT", "/admin/loggers/a", body)

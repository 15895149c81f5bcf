"""The endpoints of connectors: status codes, bodies, headers, and no secret in any of them."""

from pathlib import Path
from typing import Any

import pytest

from ottla.client.connection import Unreachable
from ottla.connect.rest.listeners import read_rest_options
from ottla.connect.rest.server import RestServer
from ottla.connect.worker.herder import ConnectorOffset, Health
from ottla.errors import ErrorCode, KafkaError
from tests.unit.connect.rest.conftest import RestClient, serve
from tests.unit.connect.rest.herders import HerderInMemory, make_plugins

SOURCE: dict[str, Any] = {"connector.class": "FileStreamSource", "topic": "t"}
HIDDEN = "[hidden]"


def test_a_connector_is_created_shown_and_deleted(client: RestClient) -> None:
    status, info, headers = client.send("POST", "/connectors", {"name": " c ", "config": {**SOURCE, "batch.size": 5}})
    assert status == 201
    assert headers["location"] == f"http://127.0.0.1:{client.port}/connectors/c"
    assert info == {
        "name": "c",
        "config": {**SOURCE, "batch.size": "5", "name": "c"},
        "tasks": [{"connector": "c", "task": 0}],
        "type": "source",
    }
    assert client.send("GET", "/connectors")[1] == ["c"]
    assert client.send("GET", "/connectors/c")[1] == info
    assert client.send("GET", "/connectors/c/config")[1] == info["config"]
    assert client.send("GET", "/connectors/c/tasks")[1] == [
        {"id": {"connector": "c", "task": 0}, "config": info["config"]}
    ]
    assert client.send("POST", "/connectors", {"name": "c", "config": SOURCE})[:2] == (
        409,
        {"error_code": 409, "message": "Connector c already exists"},
    )
    assert client.send("DELETE", "/connectors/c")[:2] == (204, "")
    assert client.send("DELETE", "/connectors/c")[0] == 404


def test_a_configuration_is_put_and_patched(client: RestClient) -> None:
    status, info, headers = client.send("PUT", "/connectors/a%20b/config", SOURCE)
    assert (status, info["name"], info["config"]["name"]) == (201, "a b", "a b")
    assert headers["location"].endswith("/connectors/a%20b")
    assert client.send("PUT", "/connectors/a%20b/config", {**SOURCE, "file": "f"})[0] == 200
    status, info, _ = client.send("PATCH", "/connectors/a%20b/config", {"file": None, "batch.size": 7})
    assert (status, info["config"]) == (200, {**SOURCE, "batch.size": "7", "name": "a b"})
    assert client.send("PATCH", "/connectors/none/config", {})[0] == 404


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "Connector config {name=x} contains no connector type"),
        ({**SOURCE, "name": "y"}, "Connector name configuration (y) doesn't match connector name in the URL (x)"),
        (
            {"connector.class": "FileStreamSource", "tasks.max": "abc"},
            "Connector configuration is invalid and contains the following 3 error(s):\n"
            "Invalid value abc for configuration tasks.max: Not a number of type INT\n"
            "Invalid value null for configuration tasks.max: Value must be non-null\n"
            'Missing required configuration "topic" which has no default value.\n'
            "You can also find the above list of errors at the endpoint"
            " `/connector-plugins/{connectorType}/config/validate`",
        ),
        (
            {**SOURCE, "y": None},
            "Connector configuration is invalid and contains the following 1 error(s):\n"
            "Null value can not be supplied as the configuration value.\n"
            "You can also find the above list of errors at the endpoint"
            " `/connector-plugins/{connectorType}/config/validate`",
        ),
    ],
)
def test_a_wrong_configuration_is_refused_with_all_that_is_wrong(
    client: RestClient, config: dict[str, Any], message: str
) -> None:
    for method, path, body in (
        ("POST", "/connectors", {"name": "x", "config": config}),
        ("PUT", "/connectors/x/config", config),
    ):
        assert client.send(method, path, body)[:2] == (400, {"error_code": 400, "message": message})
    assert client.send("GET", "/connectors")[1] == []


def test_states_are_changed_and_shown(client: RestClient) -> None:
    client.create("c")
    assert client.send("PUT", "/connectors/c/pause")[:2] == (202, "")
    worker = {"state": "PAUSED", "worker_id": "127.0.0.1:8083", "version": "1.0"}
    status = {"name": "c", "connector": worker, "tasks": [{"id": 0, **worker}], "type": "source"}
    assert client.send("GET", "/connectors/c/status")[:2] == (200, status)
    assert client.send("GET", "/connectors/c/tasks/0/status")[:2] == (200, {"id": 0, **worker})
    assert client.send("GET", "/connectors/c/tasks/1/status")[0] == 404
    assert client.send("PUT", "/connectors/c/resume")[:2] == (202, "")
    assert client.send("POST", "/connectors/c/restart")[:2] == (204, "")
    assert client.send("POST", "/connectors/c/restart?includeTasks=maybe")[0] == 204
    for flags in ("includeTasks=true", "onlyFailed=true"):
        code, document, _ = client.send("POST", f"/connectors/c/restart?{flags}")
        assert (code, document["name"]) == (202, "c")
    assert client.send("POST", "/connectors/c/tasks/0/restart")[:2] == (204, "")
    assert client.send("PUT", "/connectors/c/stop")[:2] == (204, "")
    assert client.send("GET", "/connectors/c/status")[1]["tasks"] == []


def test_a_connector_can_begin_in_another_state(client: RestClient) -> None:
    for state in ("stopped", "PAUSED"):
        body = {"name": state, "config": SOURCE, "initial_state": state}
        assert client.send("POST", "/connectors", body)[0] == 201
        found = client.send("GET", f"/connectors/{state}/status")[1]["connector"]["state"]
        assert found == state.upper()


def test_the_list_can_be_expanded(client: RestClient) -> None:
    client.create("c")
    status = client.send("GET", "/connectors/c/status")[1]
    info = client.send("GET", "/connectors/c")[1]
    both = client.send("GET", "/connectors?expand=status&expand=info&expand=other")[1]
    assert both == {"c": {"status": status, "info": info}}
    assert client.send("GET", "/connectors?expand=other")[1] == {"c": {}}


def test_offsets_are_shown_changed_and_reset(client: RestClient) -> None:
    client.create("c")
    offsets = {"offsets": [{"partition": {"filename": "f"}, "offset": {"position": 20}}]}
    assert client.send("PATCH", "/connectors/c/offsets", offsets)[0] == 400
    client.send("PUT", "/connectors/c/stop")
    status, document, _ = client.send("PATCH", "/connectors/c/offsets", offsets)
    assert (status, document) == (200, {"message": "The offsets for this connector have been altered successfully"})
    assert client.herder.offsets["c"] == [ConnectorOffset({"filename": "f"}, {"position": 20})]
    assert client.send("GET", "/connectors/c/offsets")[1] == offsets
    assert client.send("DELETE", "/connectors/c/offsets")[0] == 200
    assert client.send("GET", "/connectors/c/offsets")[1] == {"offsets": []}
    empty: tuple[dict[str, Any], ...] = ({}, {"offsets": []}, {"offsets": None})
    for body in empty:
        status, document, _ = client.send("PATCH", "/connectors/c/offsets", body)
        assert status == 400
        assert document["message"] == "Partitions / offsets need to be provided for an alter offsets request"
    for wrong in ({"offsets": 7}, {"offsets": [7]}, {"offsets": [{"partition": 7}]}, {"x": 1}):
        assert client.send("PATCH", "/connectors/c/offsets", wrong)[0] == 500


def test_topics_are_shown_unless_the_worker_forbids_it(client: RestClient) -> None:
    client.create("c")
    assert client.send("GET", "/connectors/c/topics")[:2] == (200, {"c": {"topics": ["t"]}})
    assert client.send("PUT", "/connectors/c/topics/reset")[:2] == (202, "")
    with serve({"topic.tracking.allow.reset": "false"}) as other:
        assert other.send("GET", "/connectors/c/topics")[0] == 200
        assert other.send("PUT", "/connectors/c/topics/reset")[1]["message"] == "Topic tracking reset is disabled."
    with serve({"topic.tracking.enable": "false"}) as other:
        assert other.send("GET", "/connectors/c/topics")[:2] == (
            403,
            {"error_code": 403, "message": "Topic tracking is disabled."},
        )
        assert other.send("PUT", "/connectors/c/topics/reset")[1]["message"] == "Topic tracking is disabled."


def test_the_worker_says_how_it_is(client: RestClient) -> None:
    assert client.send("GET", "/")[1] == {"version": "1.0", "commit": "c0ffee", "kafka_cluster_id": "cluster"}
    for status, code in (("healthy", 200), ("starting", 503), ("unhealthy", 500)):
        client.herder.health = Health(status, "why")  # type: ignore[arg-type]
        assert client.send("GET", "/health")[:2] == (code, {"status": status, "message": "why"})


def test_log_levels_are_shown_and_set(client: RestClient) -> None:
    assert client.send("PUT", "/admin/loggers/a", {"level": "debug"})[:2] == (200, ["a"])
    assert client.send("PUT", "/admin/loggers/b?scope=cluster", {"level": "WARN"})[:2] == (204, "")
    assert client.send("PUT", "/admin/loggers/c?scope=other", {"level": "INFO"})[:2] == (200, ["c"])
    assert client.send("GET", "/admin/loggers/a")[1] == {"level": "DEBUG", "last_modified": 1}
    assert list(client.send("GET", "/admin/loggers")[1]) == ["a", "b", "c"]
    assert client.send("GET", "/admin/loggers/x")[0] == 404
    assert client.send("PUT", "/admin/loggers/a", {"level": "x"})[1] == {
        "error_code": 404,
        "message": "invalid log level 'x'.",
    }
    for body in ({}, {"level": None}):
        assert client.send("PUT", "/admin/loggers/a", body)[0] == 400


def test_admin_can_have_a_port_of_its_own_or_none() -> None:
    with serve({"admin.listeners": ""}) as client:
        assert client.send("GET", "/admin/loggers")[0] == 404
    properties = {"listeners": "http://127.0.0.1:0", "admin.listeners": "http://127.0.0.1:0"}
    server = RestServer(read_rest_options(properties))
    plugins = make_plugins()
    herder = HerderInMemory(plugins)
    server.start(herder, plugins)
    try:
        assert RestClient(server.ports, herder).send("GET", "/admin/loggers")[0] == 404
        admin = RestClient(server.admin_ports, herder)
        assert admin.send("GET", "/admin/loggers")[:2] == (200, {})
        assert admin.send("GET", "/connectors")[0] == 404
    finally:
        server.stop()


class TestSecrets:
    """Passwords and what config providers give are in no answer; who sends a shown configuration back loses nothing."""

    def test_passwords_are_hidden_and_kept(self, client: RestClient) -> None:
        secret = {"secret": "hunter2", "producer.override.sasl.jaas.config": "hunter3", "url": "http://a:hunter4@b/"}
        client.create("c", **secret)
        for path in ("/connectors/c", "/connectors/c/config", "/connectors/c/tasks", "/connectors?expand=info"):
            assert "hunter" not in str(client.send("GET", path)[1])
        shown = client.send("GET", "/connectors/c/config")[1]
        assert (shown["secret"], shown["url"]) == (HIDDEN, f"http://a:{HIDDEN}@b/")
        status, info, _ = client.send("PUT", "/connectors/c/config", {**shown, "topic": "u"})
        assert (status, info["config"]["topic"]) == (200, "u")
        assert client.herder.configs["c"] == {**SOURCE, **secret, "name": "c", "topic": "u"}
        client.send("PATCH", "/connectors/c/config", {"secret": HIDDEN, "batch.size": "1"})
        assert client.herder.configs["c"]["secret"] == "hunter2"
        client.send("PATCH", "/connectors/c/config", {"secret": "new"})
        assert client.herder.configs["c"]["secret"] == "new"

    def test_traces_and_errors_are_redacted(self, client: RestClient) -> None:
        client.create("c", secret="hunter2")
        client.herder.traces["c"] = "login failed for hunter2"
        assert client.send("GET", "/connectors/c/status")[1]["connector"]["trace"] == f"login failed for {HIDDEN}"
        config = {**SOURCE, "secret": "hunter5", "batch.size": "hunter5"}
        for method, path in (
            ("PUT", "/connectors/d/config"),
            ("PUT", "/connector-plugins/FileStreamSource/config/validate"),
        ):
            assert "hunter5" not in str(client.send(method, path, config)[1])

    def test_references_are_shown_instead_of_their_values(self, tmp_path: Path) -> None:
        (tmp_path / "s").write_text("number=hunter6\nfile=hunter7")
        provider = "org.apache.kafka.common.config.provider.FileConfigProvider"
        with serve({"config.providers": "file", "config.providers.file.class": provider}) as client:
            config = {**SOURCE, "batch.size": f"${{file:{tmp_path}/s:number}}", "file": f"${{file:{tmp_path}/s:file}}"}
            status, document, _ = client.send("PUT", "/connectors/c/config", config)
            assert status == 400
            assert f"Invalid value {HIDDEN} for configuration batch.size: Not a number" in document["message"]
            _, report, _ = client.send("PUT", "/connector-plugins/FileStreamSource/config/validate", config)
            assert "hunter" not in str(report)
            values = {each["value"]["name"]: each["value"]["value"] for each in report["configs"]}
            assert values["file"] == config["file"]
            config["batch.size"] = f"${{file:{tmp_path}/s:none}}"
            message = client.send("PUT", "/connectors/c/config", config)[1]["message"]
            assert f"file {tmp_path}/s has no key none" in message


@pytest.mark.parametrize(
    "error", [Unreachable("127.0.0.1:9: nobody\nlistens"), KafkaError(ErrorCode.REQUEST_TIMED_OUT)]
)
def test_a_kafka_cluster_that_is_away_is_one_line(
    client: RestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    def fail() -> Any:
        raise error

    monkeypatch.setattr(client.herder, "get_cluster_info", fail)
    message = " ".join(str(error).split())
    assert client.send("GET", "/")[:2] == (500, {"error_code": 500, "message": message})
    assert [(each.getMessage(), each.exc_info) for each in caplog.records] == [(f"GET / failed: {message}", None)]

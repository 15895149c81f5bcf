"""A client library that we did not write, kafka-connect-py, works with the REST server."""

from typing import Any

import pytest
from kafka_connect import KafkaConnect
from requests.exceptions import HTTPError

from tests.unit.connect.rest.conftest import RestClient

CONFIG = {"connector.class": "FileStreamSource", "topic": "t"}


@pytest.fixture
def library(client: RestClient) -> Any:
    return KafkaConnect(url=f"http://127.0.0.1:{client.port}")


def test_it_creates_changes_and_deletes_connectors(library: Any, client: RestClient) -> None:
    library.create_connector({"name": "c", "config": CONFIG})
    assert library.list_connectors() == ["c"]
    library.update_connector("c", {**CONFIG, "batch.size": "7"})
    assert library.get_connector_config("c")["batch.size"] == "7"
    assert library.get_connector("c")["type"] == "source"
    assert set(library.list_connectors(expand="status")["c"]) == {"status"}
    library.delete_connector("c")
    assert client.herder.configs == {}


def test_it_changes_states(library: Any) -> None:
    library.create_connector({"name": "c", "config": CONFIG})
    library.pause_connector("c")
    assert library.get_connector_status("c")["connector"]["state"] == "PAUSED"
    library.resume_connector("c")
    library.restart_connector("c", include_tasks=True, only_failed=True)
    library.restart_connector_task("c", 0)
    assert library.get_connector_task_status("c", 0)["state"] == "RUNNING"
    assert [task["id"]["task"] for task in library.list_connector_tasks("c")] == [0]
    library.stop_connector("c")
    assert library.get_connector_status("c")["tasks"] == []


def test_it_asks_for_plugins_topics_and_validation(library: Any) -> None:
    library.create_connector({"name": "c", "config": CONFIG})
    assert library.get_cluster_info()["kafka_cluster_id"] == "cluster"
    assert len(library.list_connector_plugins()) == 2
    assert library.list_connector_topics("c")["c"]["topics"] == ["t"]
    library.reset_connector_topics("c")
    assert library.validate_connector_config("FileStreamSource", {**CONFIG, "name": "x"})["error_count"] == 0


def test_it_understands_a_refusal(library: Any) -> None:
    with pytest.raises(HTTPError) as raised:
        library.get_connector("none")
    assert raised.value.response is not None
    assert raised.value.response.json() == {"error_code": 404, "message": "Connector none not found"}

"""Subscriptions to clients' metrics over the wire: made, refused, described, listed, deleted, kept.

What each answer says beside Apache Kafka's is in test_admin_beside_kafka.py.
"""

from ottla import testing
from ottla.errors import ErrorCode
from ottla.wire.messages import describe_configs as described
from ottla.wire.messages import incremental_alter_configs as altering
from ottla.wire.messages.list_config_resources import ListConfigResourcesRequest
from tests.raw_client import RawClient
from tests.scenarios.client_calls import connect

CLIENT_METRICS = 16
OF_CLIENT_METRICS, DEFAULT = 7, 5
SET, DELETE = 0, 1


def alter(client: RawClient, name: str, value: str | None, operation: int = SET) -> tuple[int, str | None]:
    config = altering.AlterableConfig(name=name, config_operation=operation, value=value)
    resource = altering.AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name="slow", configs=[config])
    (response,) = client.request(altering.IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    return response.error_code, response.error_message


def settings(client: RawClient) -> dict[str, tuple[str | None, int]]:
    asked = described.DescribeConfigsResource(
        resource_type=CLIENT_METRICS, resource_name="slow", configuration_keys=None
    )
    (result,) = client.request(described.DescribeConfigsRequest(resources=[asked]), 4).results
    return {each.name: (each.value, each.config_source) for each in result.configs}


def subscriptions(client: RawClient, version: int) -> list[str]:
    request = ListConfigResourcesRequest(resource_types=[CLIENT_METRICS] if version else [])
    return [each.resource_name for each in client.request(request, version).config_resources]


def test_a_subscription_is_created_kept_and_deleted() -> None:
    # The first setting creates the subscription, a restart keeps it, and it is gone with its last setting.
    with testing.broker() as broker:
        with connect(broker) as client:
            assert subscriptions(client, 0) == []
            assert alter(client, "interval.ms", "60000") == (0, None)
            assert alter(client, "match", "client_id=orders-.*, client_software_name=rust") == (0, None)
        broker.restart()
        with connect(broker) as client:
            assert settings(client) == {
                "interval.ms": ("60000", OF_CLIENT_METRICS),
                "match": ("client_id=orders-.*,client_software_name=rust", OF_CLIENT_METRICS),
                "metrics": ("", DEFAULT),
            }
            assert subscriptions(client, 0) == subscriptions(client, 1) == ["slow"]
            for name in ("interval.ms", "match"):
                assert alter(client, name, None, DELETE) == (0, None)
            assert subscriptions(client, 1) == []


def test_a_refusal_says_what_is_wrong(client: RawClient) -> None:
    # A refused subscription is not stored.
    code, message = alter(client, "match", "client_id=(")
    assert (code, message is not None and "regular expression" in message) == (ErrorCode.INVALID_CONFIG, True)
    code, message = alter(client, "intervalms", "60000")
    assert (code, message is not None and "interval.ms" in message) == (ErrorCode.INVALID_REQUEST, True)
    assert subscriptions(client, 1) == []

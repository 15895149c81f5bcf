"""Settings of groups over the wire: set, refused, described, listed, deleted, kept."""

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

import ottla.testing
from ottla.errors import ErrorCode
from ottla.testing import LocalBroker
from ottla.wire.messages import describe_configs as described
from ottla.wire.messages import incremental_alter_configs as altering
from ottla.wire.messages.list_config_resources import ListConfigResourcesRequest
from tests.patience import PATIENCE_S
from tests.raw_client import RawClient
from tests.scenarios.client_calls import connect

GROUP = 32
OF_GROUP, DEFAULT = 8, 5
SET, DELETE = 0, 1
SESSION = "consumer.session.timeout.ms"


@pytest.fixture
def own_broker() -> Iterator[LocalBroker]:
    with ottla.testing.broker() as broker:
        yield broker


def alter(client: RawClient, group: str, name: str, value: str | None, operation: int = SET) -> int:
    config = altering.AlterableConfig(name=name, config_operation=operation, value=value)
    resource = altering.AlterConfigsResource(resource_type=GROUP, resource_name=group, configs=[config])
    (response,) = client.request(altering.IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    code: int = response.error_code
    return code


def session_timeout(client: RawClient, group: str) -> tuple[str | None, int]:
    asked = described.DescribeConfigsResource(resource_type=GROUP, resource_name=group, configuration_keys=[SESSION])
    (result,) = client.request(described.DescribeConfigsRequest(resources=[asked]), 4).results
    (setting,) = result.configs
    return setting.value, setting.config_source


def groups_with_settings(client: RawClient) -> list[str]:
    found = client.request(ListConfigResourcesRequest(resource_types=[GROUP]), 1).config_resources
    return [resource.resource_name for resource in found]


def test_a_setting_is_stored_kept_and_deleted(own_broker: LocalBroker) -> None:
    """A setting is described, kept over a restart, and deleted; then the broker's default counts again."""
    with connect(own_broker) as client:
        assert session_timeout(client, "g") == ("45000", DEFAULT)
        assert groups_with_settings(client) == []
        assert alter(client, "g", SESSION, "50000") == 0
        assert session_timeout(client, "g") == ("50000", OF_GROUP)
        assert groups_with_settings(client) == ["g"]
    own_broker.restart()
    with connect(own_broker) as client:
        assert session_timeout(client, "g") == ("50000", OF_GROUP)
        assert alter(client, "g", SESSION, None, DELETE) == 0
        assert session_timeout(client, "g") == ("45000", DEFAULT)
        assert groups_with_settings(client) == []


def test_invalid_settings_are_refused(own_broker: LocalBroker) -> None:
    """Values beyond the broker's limits, unknown names and groups without a name change nothing."""
    with connect(own_broker) as client:
        assert alter(client, "g", SESSION, "1") == ErrorCode.INVALID_CONFIG
        assert alter(client, "g", "retention.ms", "1") == ErrorCode.INVALID_CONFIG
        assert alter(client, "", SESSION, "50000") == ErrorCode.INVALID_REQUEST
        assert groups_with_settings(client) == []


def test_a_client_library_sets_and_describes_settings(own_broker: LocalBroker) -> None:
    """librdkafka's admin client sets and describes the settings of a group."""
    admin = AdminClient({"bootstrap.servers": own_broker.bootstrap})
    wanted = ConfigEntry(SESSION, "47000", incremental_operation=AlterConfigOpType.SET)
    changed = ConfigResource(ResourceType.GROUP, "g", incremental_configs=[wanted])
    for future in admin.incremental_alter_configs([changed]).values():
        future.result(timeout=PATIENCE_S)
    (future,) = admin.describe_configs([ConfigResource(ResourceType.GROUP, "g")]).values()
    assert future.result(timeout=PATIENCE_S)[SESSION].value == "47000"

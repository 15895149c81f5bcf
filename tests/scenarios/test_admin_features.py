"""Features over the wire: what ApiVersions says of them, and UpdateFeatures."""

from typing import Any

import pytest

import ottla.testing
from ottla.cluster.features import SUPPORTED
from ottla.errors import ErrorCode
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.raw_client import RawClient

NEWEST = [(name, levels[-1], levels[-1]) for name, levels in sorted(SUPPORTED.items())]


def read_finalised_features(client: RawClient, version: int = 4) -> tuple[list[tuple[str, int, int]], int]:
    answer = client.request(ApiVersionsRequest(client_software_name="raw", client_software_version="1"), version)
    # Below version 4 a feature that may be absent (level 0) cannot be told.
    assert [(each.name, each.min_version, each.max_version) for each in answer.supported_features] == [
        (name, levels[0], levels[-1]) for name, levels in sorted(SUPPORTED.items()) if version >= 4 or levels[0]
    ]
    levels = [(each.name, each.min_version_level, each.max_version_level) for each in answer.finalized_features]
    return levels, answer.finalized_features_epoch


def update(client: RawClient, version: int, *features: tuple[str, int], **options: bool) -> Any:
    updates = [FeatureUpdateKey(feature=name, max_version_level=level) for name, level in features]
    return client.request(UpdateFeaturesRequest(feature_updates=updates, **options), version)


@pytest.mark.parametrize("version", [3, 4])
def test_features_are_told_to_every_client(client: RawClient, version: int) -> None:
    """What this broker has, and what the cluster agreed on: nothing that is not there."""
    levels, epoch = read_finalised_features(client, version)
    assert levels == NEWEST
    assert ("metadata.version", 30, 30) in levels and ("transaction.version", 2, 2) in levels
    assert epoch > 0


@pytest.mark.parametrize("version", range(3))
def test_updates(client: RawClient, version: int) -> None:
    """The level that holds is fine, with a result per feature below version 2; any other one is refused as a whole."""
    answer = update(client, version, ("metadata.version", 30))
    assert answer.error_code == 0
    assert [(each.feature, each.error_code) for each in answer.results] == [("metadata.version", 0)] * (version < 2)
    for feature, level in (("metadata.version", 31), ("metadata.version", 7), ("nope", 1)):
        answer = update(client, version, (feature, level))
        assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert feature in answer.error_message
    if version:
        assert update(client, version, ("metadata.version", 31), validate_only=True).error_code != 0
    assert read_finalised_features(client)[0] == NEWEST


def test_features_are_there_after_a_restart() -> None:
    """They are in the metadata, and a second start finds them: the epoch only grows."""
    with ottla.testing.broker() as broker:
        with RawClient(broker.host, broker.port) as client:
            levels, epoch = read_finalised_features(client)
        broker.restart()
        with RawClient(broker.host, broker.port) as client:
            again, later = read_finalised_features(client)
    assert again == levels
    assert later > epoch

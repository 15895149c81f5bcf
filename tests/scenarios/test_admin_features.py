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
    # Answers below version 4 leave out a feature whose lowest level is 0.
    assert [(each.name, each.min_version, each.max_version) for each in answer.supported_features] == [
        (name, levels[0], levels[-1]) for name, levels in sorted(SUPPORTED.items()) if version >= 4 or levels[0]
    ]
    levels = [(each.name, each.min_version_level, each.max_version_level) for each in answer.finalized_features]
    return levels, answer.finalized_features_epoch


def update(client: RawClient, version: int, *features: tuple[str, int], **options: bool) -> Any:
    updates = [FeatureUpdateKey(feature=name, max_version_level=level) for name, level in features]
    return client.request(UpdateFeaturesRequest(feature_updates=updates, **options), version)


@pytest.mark.parametrize("version", [3, 4])
def test_api_versions_lists_features(client: RawClient, version: int) -> None:
    """ApiVersions has the features that this broker supports, and the finalized ones. No other feature is listed."""
    levels, epoch = read_finalised_features(client, version)
    assert levels == NEWEST
    assert ("metadata.version", 30, 30) in levels and ("transaction.version", 2, 2) in levels
    assert epoch > 0


@pytest.mark.parametrize("version", range(3))
def test_update_features_accepts_only_the_present_level(client: RawClient, version: int) -> None:
    """The present level is accepted, with a result for each feature below version 2. Any other level is refused as a
    whole."""
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


def test_features_survive_a_restart() -> None:
    """Features are in the metadata, and a second start reads them. Their epoch only grows."""
    with ottla.testing.broker() as broker:
        with RawClient(broker.host, broker.port) as client:
            levels, epoch = read_finalised_features(client)
        broker.restart()
        with RawClient(broker.host, broker.port) as client:
            again, later = read_finalised_features(client)
    assert again == levels
    assert later > epoch

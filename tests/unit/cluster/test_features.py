"""Levels of features: what a new cluster gets, what may be asked for, and what is refused."""

import pytest

from ottla.cluster import features
from ottla.cluster.changes import ConfigResource, RegisterBroker, SetConfig, SupportedFeature
from ottla.cluster.features import (
    COMMON_MIN_ISR_FEATURE,
    FeatureUpdate,
    UpgradeType,
    introduce_features,
    update_features,
)
from ottla.cluster.image import EMPTY, Image
from ottla.errors import ErrorCode, KafkaError

UPGRADE, SAFE, UNSAFE = UpgradeType


@pytest.fixture(autouse=True)
def two_features(monkeypatch: pytest.MonkeyPatch) -> None:
    """One with a single level, as in a release, and one with levels to choose from."""
    supported = {"metadata.version": range(30, 31), "colours.version": range(0, 3)}
    monkeypatch.setattr(features, "SUPPORTED", supported)


def new_cluster() -> Image:
    return EMPTY.replay(1, introduce_features(EMPTY, 1).changes)


def updated(image: Image, *updates: FeatureUpdate) -> dict[str, int]:
    return dict(image.replay(image.version + 1, update_features(image, updates, 1).changes).features)


def refusal(image: Image, *updates: FeatureUpdate) -> str:
    with pytest.raises(KafkaError) as refused:
        update_features(image, updates, 1)
    assert refused.value.code is ErrorCode.INVALID_UPDATE_VERSION
    return refused.value.message


def test_a_new_cluster_has_all_of_it() -> None:
    """At the newest level; one that has agreed on something is left as it is, also without a feature."""
    image = new_cluster()
    assert dict(image.features) == {"metadata.version": 30, "colours.version": 2}
    assert introduce_features(image, 1).changes == []
    without = image.replay(2, update_features(image, [FeatureUpdate("colours.version", 0, SAFE)], 1).changes)
    assert introduce_features(without, 1).changes == []


def test_levels_move() -> None:
    """Up, down when that is asked for, away at level 0; the level that holds is nothing to do."""
    image = new_cluster()
    assert updated(image, FeatureUpdate("colours.version", 1, SAFE))["colours.version"] == 1
    assert "colours.version" not in updated(image, FeatureUpdate("colours.version", 0, UNSAFE))
    assert update_features(image, [FeatureUpdate("metadata.version", 30)], 1).changes == []
    assert update_features(image, [], 1).changes == []


@pytest.mark.parametrize(
    ("update", "said"),
    [
        (FeatureUpdate("nope", 1), "does not have"),
        (FeatureUpdate("metadata.version", 31), "level 30 only"),
        (FeatureUpdate("metadata.version", 0, UNSAFE), "level 30 only"),
        (FeatureUpdate("colours.version", 3), "levels 0 to 2"),
        (FeatureUpdate("colours.version", -1, SAFE), "levels 0 to 2"),
        (FeatureUpdate("colours.version", 1), "as a downgrade"),
        (FeatureUpdate("colours.version", 2, 9), "no upgrade type 9"),
    ],
)
def test_refusals(update: FeatureUpdate, said: str) -> None:
    """INVALID_UPDATE_VERSION names the feature and the reason, and refuses the other updates with it."""
    message = refusal(new_cluster(), FeatureUpdate("metadata.version", 30), update)
    assert said in message
    assert repr(update.feature) in message


def test_a_higher_level_is_no_downgrade() -> None:
    """As in Kafka: who asks for a downgrade must not get an upgrade."""
    image = new_cluster()
    lower = image.replay(2, update_features(image, [FeatureUpdate("colours.version", 1, SAFE)], 1).changes)
    assert "no downgrade" in refusal(lower, FeatureUpdate("colours.version", 2, SAFE))


@pytest.mark.parametrize(
    ("supported", "said"),
    [
        ((SupportedFeature("colours.version", 0, 1),), "broker 7 supports levels 0 to 1"),
        ((SupportedFeature("other.version", 0, 1),), "broker 7 does not have that feature; upgrade or unregister it"),
    ],
)
def test_every_registered_broker_must_support_the_level(supported: tuple[SupportedFeature, ...], said: str) -> None:
    """Also one that is away, or it could not register again."""
    image = new_cluster()
    image = image.replay(2, update_features(image, [FeatureUpdate("colours.version", 0, SAFE)], 1).changes)
    image = image.replay(3, [RegisterBroker(7, (b"d" * 16,), (), features=supported)])
    assert said in refusal(image, FeatureUpdate("colours.version", 2))
    able = image.replay(4, [RegisterBroker(7, (b"d" * 16,), (), features=features.list_supported_features())])
    assert updated(able, FeatureUpdate("colours.version", 2))["colours.version"] == 2


def test_min_insync_replicas_belongs_to_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new cluster has the number of its first broker. An older one gets it with the feature, and its brokers lose
    what they have of their own."""
    name = "min.insync.replicas"
    founded = EMPTY.replay(1, introduce_features(EMPTY, 2).changes)
    assert dict(founded.config(ConfigResource.BROKER, "")) == {name: "2"}
    given = EMPTY.replay(1, [SetConfig(ConfigResource.BROKER, "", name, "3")])
    assert not [each for each in introduce_features(given, 2).changes if isinstance(each, SetConfig)]

    monkeypatch.setitem(features.SUPPORTED, COMMON_MIN_ISR_FEATURE, range(0, 2))
    older = EMPTY.replay(1, [RegisterBroker(1, (b"d" * 16,), ()), SetConfig(ConfigResource.BROKER, "1", name, "1")])
    changes = update_features(older, [FeatureUpdate(COMMON_MIN_ISR_FEATURE, 1)], 2).changes
    upgraded = older.replay(2, changes)
    assert dict(upgraded.config(ConfigResource.BROKER, "")) == {name: "2"}
    assert not upgraded.config(ConfigResource.BROKER, "1")

"""The two telemetry APIs without a network: intervals, changed subscriptions, limits, and what is remembered."""

from random import Random

import pytest

from ottla.cluster.changes import ConfigResource, SetConfig
from ottla.cluster.image import EMPTY, Image
from ottla.errors import ErrorCode, KafkaError
from ottla.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress
from ottla.telemetry import instances, series
from ottla.telemetry.telemetry import Push, Telemetry
from tests.unit.telemetry.otlp_writer import GAUGE, SUM, metric, metrics_data, number_point

NOBODY = bytes(16)
TRAITS = {"client_id": "app", "client_software_name": "librdkafka"}
DATA = metrics_data(metric("org.a.queue", GAUGE, number_point(5)), metric("org.b.bytes", SUM, number_point(7)))


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def image_with(**settings: str) -> Image:
    named = {"interval.ms": "10000", "metrics": "*", **settings}
    return EMPTY.replay(
        1, [SetConfig(ConfigResource.CLIENT_METRICS, "all", key, value) for key, value in named.items()]
    )


def start(image: Image = EMPTY) -> tuple[Telemetry, Clock]:
    clock = Clock()
    return Telemetry(image, 1000, clock, Random(1)), clock


def push_code(telemetry: Telemetry, push: Push) -> int:
    try:
        telemetry.push(push, "app", TRAITS)
    except KafkaError as error:
        return error.code
    return 0


def ask_code(telemetry: Telemetry, instance_id: bytes) -> int:
    try:
        telemetry.subscribe(instance_id, "app", TRAITS)
    except KafkaError as error:
        return error.code
    return 0


def test_a_client_gets_an_id_and_may_push_once_in_an_interval() -> None:
    telemetry, clock = start(image_with())
    instance_id, subscription = telemetry.subscribe(NOBODY, "app", TRAITS)
    assert instance_id != NOBODY
    assert (subscription.metrics, subscription.interval_ms) == (("*",), 10_000)
    push = Push(instance_id, subscription.id, False, NONE, DATA)
    assert push_code(telemetry, push) == 0
    assert push_code(telemetry, push) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert ask_code(telemetry, instance_id) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    clock.seconds += 10
    assert push_code(telemetry, push) == 0
    assert push_code(telemetry, push._replace(is_terminating=True)) == 0  # the last push may come at any time
    assert push_code(telemetry, push) == ErrorCode.INVALID_REQUEST
    ((_, client),) = telemetry.series.read()
    assert list(client.gauges.values()) == [5]
    assert list(client.sums.values()) == [21]
    assert (telemetry.pushes, telemetry.refused, telemetry.throttled) == (3, 2, 2)


def test_a_changed_subscription_is_asked_for_at_once() -> None:
    before = image_with()
    telemetry, _ = start(before)
    instance_id, old = telemetry.subscribe(NOBODY, "app", TRAITS)
    telemetry.follow(before, image_with(metrics="org.b.,org.c"))
    assert push_code(telemetry, Push(instance_id, old.id, False, NONE, DATA)) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    _, new = telemetry.subscribe(instance_id, "app", TRAITS)
    assert new.metrics == ("org.b.", "org.c")
    assert push_code(telemetry, Push(instance_id, new.id, False, NONE, DATA)) == 0
    ((_, client),) = telemetry.series.read()
    assert [key.name for key in (*client.gauges, *client.sums)] == ["org.b.bytes"]


@pytest.mark.parametrize(
    ("match", "metrics"),
    [
        ("client_id=a.*", ("*",)),
        ("client_id=a", ()),
        ("client_id=app,client_software_name=librdkafka", ("*",)),
        ("client_id=app,client_software_version=2.*", ()),
        ("client_id=(a+)+b", ()),
    ],
)
def test_a_subscription_chooses_its_clients(match: str, metrics: tuple[str, ...]) -> None:
    # Every pattern must match the whole text.
    telemetry, _ = start(image_with(match=match))
    traits = {**TRAITS, "client_id": "a" * 10_000} if "+" in match else TRAITS
    _, subscription = telemetry.subscribe(NOBODY, "app", traits)
    assert subscription.metrics == metrics
    assert subscription.interval_ms == (10_000 if metrics else 300_000)


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
def test_every_codec_is_unpacked_within_bounds(codec: int) -> None:
    telemetry, clock = start(image_with())
    instance_id, subscription = telemetry.subscribe(NOBODY, "app", TRAITS)
    assert push_code(telemetry, Push(instance_id, subscription.id, False, codec, bytes(compress(codec, DATA)))) == 0
    assert len(telemetry.series) == 2
    clock.seconds += 10
    bomb = bytes(compress(codec, bytes(500_000)))
    expected = ErrorCode.INVALID_RECORD if len(bomb) <= 1000 else ErrorCode.TELEMETRY_TOO_LARGE
    assert push_code(telemetry, Push(instance_id, subscription.id, False, codec, bomb)) == expected


def test_pushes_that_are_refused() -> None:
    telemetry, clock = start(image_with())
    instance_id, subscription = telemetry.subscribe(NOBODY, "app", TRAITS)
    good = Push(instance_id, subscription.id, False, NONE, DATA)
    for push, code in (
        (good._replace(instance_id=NOBODY), ErrorCode.INVALID_REQUEST),
        (good._replace(subscription_id=subscription.id ^ 1), ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        (good._replace(codec=9), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (good._replace(metrics=bytes(1001)), ErrorCode.TELEMETRY_TOO_LARGE),
        (good._replace(metrics=b"\xff"), ErrorCode.INVALID_RECORD),
        (good._replace(codec=GZIP), ErrorCode.INVALID_RECORD),
    ):
        assert push_code(telemetry, push) == code
        clock.seconds += 10
    assert len(telemetry.series) == 0


def test_what_clients_push_takes_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    # Clients, series of one client and series of all are limited; clients that are gone leave nothing.
    monkeypatch.setattr(instances, "INSTANCES_MAX", 50)
    monkeypatch.setattr(series, "SERIES_MAX", 100)
    monkeypatch.setattr(series, "SERIES_OF_CLIENT_MAX", 30)
    telemetry, clock = start(image_with())
    telemetry.max_bytes = 100_000
    data = metrics_data(*(metric(f"m{number}", GAUGE, number_point(number)) for number in range(40)))
    for _ in range(200):
        instance_id, subscription = telemetry.subscribe(NOBODY, "x" * 10_000, TRAITS)
        telemetry.push(Push(instance_id, subscription.id, False, NONE, data), "x" * 10_000, TRAITS)
        assert len(telemetry.instances) <= 50
        assert len(telemetry.series) <= 100
    assert telemetry.series.left_out > 0
    clock.seconds += 61
    telemetry.series.forget(telemetry.instances.expire(clock.seconds * 1000))
    assert (len(telemetry.instances), len(telemetry.series)) == (0, 0)

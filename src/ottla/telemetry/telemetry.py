"""What GetTelemetrySubscriptions and PushTelemetry do, with Kafka's checks in Kafka's order."""

from collections.abc import Callable, Mapping
from random import Random
from typing import NamedTuple

from ottla.cluster.image import Image
from ottla.errors import ErrorCode, KafkaError
from ottla.records.compression import GZIP, LZ4, NAMES, NONE, SNAPPY, ZSTD, CorruptBatch, decompress
from ottla.telemetry.instances import Instance, Instances
from ottla.telemetry.otlp import MalformedMetrics, decode_metrics
from ottla.telemetry.series import Series
from ottla.telemetry.subscriptions import Subscription, Subscriptions

ACCEPTED_CODECS = (ZSTD, LZ4, GZIP, SNAPPY)
"""In the order in which a client should choose."""

UNPACKED_RATIO_MAX = 10
"""Metrics may take so many times telemetry.max.bytes when they are unpacked."""

RESERVED_IDS = (bytes(16), bytes(15) + b"\x01")
CLIENT_ID_LENGTH_MAX = 200


class Push(NamedTuple):
    instance_id: bytes
    subscription_id: int
    is_terminating: bool
    codec: int
    metrics: bytes


class Telemetry:
    """The telemetry of one broker. Each broker knows the clients that came to it."""

    def __init__(self, image: Image, max_bytes: int, now: Callable[[], float], random: Random) -> None:
        """`now`: the event loop's clock, in seconds."""
        self.max_bytes = max_bytes
        self.series = Series()
        self.instances = Instances()
        self.pushes = self.refused = self.unknown_subscriptions = self.throttled = 0
        self._subscriptions = Subscriptions.of(image)
        self._now = now
        self._random = random

    def follow(self, before: Image, after: Image) -> None:
        """Subscriptions are settings of the metadata."""
        if before.configs is not after.configs:
            self._subscriptions = Subscriptions.of(after)

    def subscribe(self, instance_id: bytes, client_id: str, traits: Mapping[str, str]) -> tuple[bytes, Subscription]:
        """What a client is asked for. A client that has no id yet gets one."""
        while instance_id in RESERVED_IDS:
            instance_id = self._random.randbytes(16)
        now_ms = self._now() * 1000
        instance = self._find(instance_id, client_id, traits, now_ms)
        if not instance.may_ask(now_ms):
            self.throttled += 1
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "the push interval is not over yet")
        instance.last_error = ErrorCode.NONE
        return instance_id, instance.subscription

    def push(self, push: Push, client_id: str, traits: Mapping[str, str]) -> None:
        """Take the metrics of a client. KafkaError says why not."""
        if push.instance_id in RESERVED_IDS:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the client has no instance id")
        now_ms = self._now() * 1000
        instance = self._find(push.instance_id, client_id, traits, now_ms)
        try:
            self._check(push, instance, now_ms)
            self._take(push, instance)
        except KafkaError as error:
            self.refused += 1
            instance.last_error = ErrorCode(error.code)
            raise
        finally:
            instance.is_terminating = push.is_terminating
        instance.last_error = ErrorCode.NONE
        self.pushes += 1

    async def expire(self) -> None:
        """Forget clients that are gone, with their metrics."""
        self.series.forget(self.instances.expire(self._now() * 1000))

    def _find(self, instance_id: bytes, client_id: str, traits: Mapping[str, str], now_ms: float) -> Instance:
        name = client_id[:CLIENT_ID_LENGTH_MAX]
        instance, forgotten = self.instances.find(instance_id, name, traits, self._subscriptions, now_ms)
        self.series.forget(forgotten)
        return instance

    def _check(self, push: Push, instance: Instance, now_ms: float) -> None:
        if instance.is_terminating:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the client has announced its end already")
        if not instance.may_push(now_ms) and not push.is_terminating:
            self.throttled += 1
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "the push interval is not over yet")
        if push.subscription_id != instance.subscription.id:
            self.unknown_subscriptions += 1
            raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        if push.codec != NONE and push.codec not in ACCEPTED_CODECS:
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"there is no codec {push.codec}: {NAMES}")
        if len(push.metrics) > self.max_bytes:
            raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE, f"more than {self.max_bytes} bytes")

    def _take(self, push: Push, instance: Instance) -> None:
        if not push.metrics:
            return
        try:
            points = decode_metrics(decompress(push.codec, push.metrics, self.max_bytes * UNPACKED_RATIO_MAX))
        except (CorruptBatch, MalformedMetrics) as error:
            raise KafkaError(ErrorCode.INVALID_RECORD, f"the metrics cannot be read: {error}") from None
        wants = instance.subscription.wants
        self.series.add(push.instance_id, instance.client_id, (point for point in points if wants(point.name)))

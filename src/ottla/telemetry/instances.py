"""The clients that push metrics: what each is asked for, and when it may come again. Times are in milliseconds.

A client that comes to several brokers, or comes back, has the same instance id. The number of remembered clients is
bounded: above it those that came longest ago are forgotten, which costs them one more request.
"""

from collections import OrderedDict
from collections.abc import Mapping

from ottla.errors import ErrorCode
from ottla.telemetry.subscriptions import Subscription, Subscriptions

INSTANCES_MAX = 16_384
KEPT_MS_MIN = 60_000


class Instance:
    __slots__ = (
        "_came_ms",
        "_has_asked",
        "_pushed_ms",
        "client_id",
        "is_terminating",
        "last_error",
        "seen_ms",
        "subscription",
        "subscriptions",
    )

    def __init__(self, client_id: str, subscription: Subscription, subscriptions: Subscriptions) -> None:
        self.client_id = client_id
        self.subscription = subscription
        self.subscriptions = subscriptions
        self.is_terminating = False
        self.last_error = ErrorCode.NONE
        self.seen_ms = 0.0
        self._came_ms = self._pushed_ms = float("-inf")
        self._has_asked = False

    def may_ask(self, now_ms: float) -> bool:
        """Whether the client may ask for its subscription now: once in an interval, or after it was told to."""
        told_to = self.last_error in (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if now_ms - self._came_ms < self.subscription.interval_ms and not told_to:
            return False
        self._came_ms = now_ms
        self._has_asked = True
        return True

    def may_push(self, now_ms: float) -> bool:
        """Whether the client may push now: once in an interval, and once after it has asked for its subscription."""
        if not self._has_asked and now_ms - self._pushed_ms < self.subscription.interval_ms:
            return False
        self._came_ms = self._pushed_ms = now_ms
        self._has_asked = False
        return True


class Instances:
    def __init__(self) -> None:
        self._instances: OrderedDict[bytes, Instance] = OrderedDict()  # the one that came longest ago is first

    def __len__(self) -> int:
        return len(self._instances)

    def __contains__(self, instance_id: bytes) -> bool:
        return instance_id in self._instances

    def find(
        self, instance_id: bytes, client_id: str, traits: Mapping[str, str], subscriptions: Subscriptions, now_ms: float
    ) -> tuple[Instance, list[bytes]]:
        """The client, and the ids of those that are forgotten for it. After subscriptions have changed it begins
        anew: it may ask at once."""
        instance = self._instances.get(instance_id)
        forgotten: list[bytes] = []
        if instance is None or instance.subscriptions is not subscriptions:
            instance = Instance(client_id, subscriptions.find(instance_id, traits), subscriptions)
            self._instances[instance_id] = instance
            while len(self._instances) > INSTANCES_MAX:
                forgotten.append(self._instances.popitem(last=False)[0])
        instance.seen_ms = now_ms
        self._instances.move_to_end(instance_id)
        return instance, forgotten

    def expire(self, now_ms: float) -> list[bytes]:
        """Forget clients that are gone. Returns their ids."""
        gone = [
            instance_id
            for instance_id, instance in self._instances.items()
            if now_ms - instance.seen_ms > max(KEPT_MS_MIN, 3 * instance.subscription.interval_ms)
        ]
        for instance_id in gone:
            del self._instances[instance_id]
        return gone

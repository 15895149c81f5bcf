"""Sensors of clients: who shares one, that they are bounded, and that they hold clients to their quota."""

import pytest

from ottla.cluster.quotas import make_entity
from ottla.quotas import addresses, client_quota
from ottla.quotas.addresses import AddressRates
from ottla.quotas.client_quota import SHARED, ClientQuota
from ottla.quotas.rates import Windows
from ottla.quotas.table import QuotaTable, Who
from tests.samples import sample_size

WINDOWS = Windows(11, 1000)
KEY = "producer_byte_rate"


class Clock:
    """Virtual seconds."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def quota_of(clock: Clock, *entities: tuple[list[tuple[str, str | None]], float]) -> ClientQuota:
    quota = ClientQuota(WINDOWS, clock)
    quota.follow(QuotaTable.of({make_entity(parts): {KEY: value} for parts, value in entities}, KEY))
    return quota


def send_for(quota: ClientQuota, clock: Clock, seconds: float, client_ids: list[str], user: str = "alice") -> float:
    """Send as fast as a client can that waits for as long as it is told. Returns the bytes per second."""
    began, sent, number = clock.seconds, 0, 0
    while clock.seconds - began < seconds:
        size = 1_000 + number % 7 * 3_000
        throttle_ms = quota.record(user, client_ids[number % len(client_ids)], size)
        sent += size
        number += 1
        clock.seconds += 0.001 + throttle_ms / 1000
    return sent / (clock.seconds - began)


def test_a_noisy_client_is_held_to_its_quota() -> None:
    # Within 10 % over two minutes, although the first ten seconds' worth may come at once.
    clock = Clock()
    quota = quota_of(clock, ([("client-id", "noisy")], 50_000.0))
    assert 0.9 * 50_000 <= send_for(quota, clock, 120, ["noisy"]) <= 1.1 * 50_000


def test_a_client_without_a_quota_is_not_measured() -> None:
    clock = Clock()
    quota = quota_of(clock, ([("client-id", "noisy")], 1.0))
    assert quota.record("alice", "quiet", 10**9) == 0
    assert len(quota) == 0


def test_a_user_does_not_escape_by_new_client_ids() -> None:
    # The quota of a user, also if it is the default, is for all of the user's client ids together.
    for name in ("alice", None):
        clock = Clock()
        quota = quota_of(clock, ([("user", name)], 50_000.0))
        rate = send_for(quota, clock, 120, [f"id-{number}" for number in range(5000)])
        assert 0.9 * 50_000 <= rate <= 1.1 * 50_000
        assert len(quota) == 1


def test_a_flood_of_client_ids_takes_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    # Above the limit all further ids share one sensor, and so one quota. When the windows are over there is room again.
    clock = Clock()
    monkeypatch.setattr(client_quota, "SENSORS_MAX", sample_size(1000, client_quota.SENSORS_MAX))
    quota = quota_of(clock, ([("client-id", None)], 1000.0))
    for number in range(client_quota.SENSORS_MAX + 500):
        quota.record("alice", f"id-{number}", 100)
    assert len(quota) == client_quota.SENSORS_MAX + 1
    assert quota.record("alice", "late", 1) > 0
    assert SHARED in {reading.who for reading in quota.read()}
    clock.seconds += 12
    assert quota.record("alice", "late", 1) == 0
    assert [reading.who for reading in quota.read()] == [Who(None, "late")]


@pytest.mark.parametrize("kind", [ClientQuota, AddressRates])
def test_a_flood_is_not_searched_for_idle_sensors_again_and_again(
    kind: type[ClientQuota] | type[AddressRates], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, searches = Clock(), 0

    def count(self: object, time_ms: float) -> None:
        nonlocal searches
        searches += 1

    monkeypatch.setattr(kind, "_remove_idle", count)
    for module in (client_quota, addresses):
        monkeypatch.setattr(module, "SENSORS_MAX", 10)
    quota = quota_of(clock, ([("client-id", None)], 1000.0))
    rates = AddressRates(WINDOWS, clock)
    rates.follow({make_entity([("ip", None)]): {"connection_creation_rate": 5.0}})
    for number in range(300):
        clock.seconds += 0.01
        if kind is ClientQuota:
            quota.record("alice", f"id-{number}", 1)
        else:
            rates.admit(f"10.0.1.{number}")
    assert searches == 3


def test_idle_sensors_are_removed_and_changed_quotas_count_at_once() -> None:
    clock = Clock()
    quota = quota_of(clock, ([("client-id", "a")], 1000.0))
    assert quota.record("", "a", 10_000) == 0
    quota.follow(QuotaTable.of({make_entity([("client-id", "a")]): {KEY: 500.0}}, KEY))
    assert quota.record("", "a", 0) == 10_000
    clock.seconds += 3599
    quota.expire()
    assert len(quota) == 1
    clock.seconds += 1
    quota.expire()
    assert len(quota) == 0


def test_what_would_exceed_the_quota_is_not_counted() -> None:
    # A fetch that is answered empty has sent nothing.
    clock = Clock()
    quota = quota_of(clock, ([("client-id", "a")], 1000.0))
    assert quota.record_if_allowed("", "a", 9_000) == 0
    assert quota.record_if_allowed("", "a", 2_000) == 1_000
    assert quota.record_if_allowed("", "a", 1_000) == 0


def test_a_batch_above_the_quota_of_all_windows_is_sent_in_the_end() -> None:
    # It cannot be made smaller. Kafka would send empty answers for ever.
    clock = Clock()
    quota = quota_of(clock, ([("client-id", "a")], 1000.0))
    assert quota.find_most("", "a") == 10_000
    assert quota.record_if_allowed("", "a", 50_000) == 0
    assert quota.record_if_allowed("", "a", 1) > 39_000


def test_a_strict_bucket_refuses_and_a_lenient_one_only_delays() -> None:
    clock = Clock()
    quota = quota_of(clock, ([("user", "alice")], 2.0))
    assert quota.take_tokens("alice", "", 30, strict=True) == 0  # overdrawn by 8
    assert quota.take_tokens("alice", "", 1, strict=True) == 4000
    assert quota.take_tokens("alice", "", 2, strict=False) == 5000
    clock.seconds += 5
    assert quota.take_tokens("alice", "", 1, strict=True) == 0


def test_connections_of_an_address() -> None:
    # One with a rate of its own, all others with the default; refused connections do not count. Flooding with
    # addresses fills no memory.
    clock = Clock()
    rates = AddressRates(WINDOWS, clock)
    own, default = make_entity([("ip", "10.0.0.1")]), make_entity([("ip", None)])
    rates.follow({own: {"connection_creation_rate": 2.0}, default: {"connection_creation_rate": 5.0}})
    assert sum(rates.admit("10.0.0.1") for _ in range(100)) == 20
    assert sum(rates.admit("10.0.0.2") for _ in range(100)) == 50
    assert rates.refused == 130
    clock.seconds += 12
    assert rates.admit("10.0.0.1")
    for number in range(client_quota.SENSORS_MAX + 10):
        rates.admit(f"flood-{number}")
    assert len(rates) == client_quota.SENSORS_MAX
    clock.seconds += 12
    rates.expire()
    assert len(rates) == 0
    rates.follow({})
    assert not rates.is_active

"""Collects the metrics of quotas. Client ids are what clients send, so the number of series is limited."""

from collections.abc import Callable, Iterator
from itertools import islice
from zlib import crc32

from ottla.observability import catalogue
from ottla.observability.metrics import Family, FamilySeries, Labels
from ottla.quotas.client_quota import SHARED, ClientQuota, SensorReading
from ottla.quotas.quotas import Quotas

LABEL_LENGTH_MAX = 100

SHARED_LABEL = "others"
"""The label of the clients that came when there were already too many to have a label each."""

_Numbers = tuple[tuple[Family, Callable[[SensorReading], float]], ...]


def _find_mean_throttle(reading: SensorReading) -> float:
    return reading.throttled_ms / reading.throttled if reading.throttled else 0.0


def _find_rate(reading: SensorReading) -> float:
    return reading.rate


_NUMBERS: dict[str, _Numbers] = {
    "producer_byte_rate": (
        (catalogue.PRODUCE_RATE, _find_rate),
        (catalogue.PRODUCE_THROTTLE, _find_mean_throttle),
    ),
    "consumer_byte_rate": ((catalogue.FETCH_RATE, _find_rate), (catalogue.FETCH_THROTTLE, _find_mean_throttle)),
    "request_percentage": ((catalogue.REQUEST_RATE, _find_rate), (catalogue.REQUEST_THROTTLE, _find_mean_throttle)),
    "controller_mutation_rate": (
        (catalogue.MUTATION_RATE, _find_rate),
        (catalogue.MUTATION_TOKENS, lambda reading: reading.tokens),
        (catalogue.MUTATION_THROTTLE, _find_mean_throttle),
    ),
}


def read_quotas(quotas: Quotas, most: int) -> Iterator[FamilySeries]:
    """All metrics of quotas, with at most so many clients of each kind."""
    readings = {key: _read(quota, most) for key, quota in quotas.clients.items()}
    for key, numbers in _NUMBERS.items():
        for family, value in numbers:
            yield family, [(labels, value(reading)) for labels, reading in readings[key]]
    rows = [(key, labels, reading) for key, found in readings.items() for labels, reading in found]
    yield catalogue.QUOTA_LIMIT, [((key, *labels), reading.limit) for key, labels, reading in rows]
    yield catalogue.THROTTLED, [((key, *labels), reading.throttled) for key, labels, reading in rows]
    yield catalogue.QUOTA_CLIENTS, [((key,), len(quota)) for key, quota in quotas.clients.items()]
    yield catalogue.ADDRESS_RATE, [((address,), rate) for address, rate in islice(quotas.connections.read(), most)]
    yield catalogue.ADDRESS_REFUSED, [((), quotas.connections.refused)]


def _read(quota: ClientQuota, most: int) -> list[tuple[Labels, SensorReading]]:
    # A dictionary, because no two series may have the same labels, as an empty client id and none would.
    return list({_make_labels(reading): reading for reading in islice(quota.read(), most)}.items())


def _make_labels(reading: SensorReading) -> Labels:
    if reading.who == SHARED:
        return ("", SHARED_LABEL)
    return (shorten(reading.who.user or ""), shorten(reading.who.client_id or ""))


def shorten(text: str) -> str:
    """A label of bounded length. Different texts stay different."""
    if len(text) <= LABEL_LENGTH_MAX:
        return text
    return f"{text[:LABEL_LENGTH_MAX]}~{crc32(text.encode(errors='replace')):08x}"

"""Collects the metrics that clients have pushed (KIP-714), and those about the pushing."""

from collections.abc import Callable, Iterator, Mapping

from ottla.observability import catalogue
from ottla.observability.metrics import FamilySeries, Labels
from ottla.observability.quotas import shorten
from ottla.telemetry.series import ClientSeries, Key
from ottla.telemetry.telemetry import Telemetry


def read_telemetry(telemetry: Telemetry | None) -> Iterator[FamilySeries]:
    if telemetry is None:
        return
    yield catalogue.CLIENT_INSTANCES, [((), len(telemetry.instances))]
    yield catalogue.UNKNOWN_SUBSCRIPTIONS, [((), telemetry.unknown_subscriptions)]
    yield catalogue.TELEMETRY_THROTTLED, [((), telemetry.throttled)]
    yield catalogue.TELEMETRY_PUSHES, [((), telemetry.pushes)]
    yield catalogue.TELEMETRY_REFUSED, [((), telemetry.refused)]
    yield catalogue.CLIENT_SERIES_LEFT_OUT, [((), telemetry.series.left_out)]
    yield catalogue.CLIENT_GAUGE, _read(telemetry, lambda client: client.gauges)
    yield catalogue.CLIENT_SUM, _read(telemetry, lambda client: client.sums)


def _read(telemetry: Telemetry, choose: Callable[[ClientSeries], Mapping[Key, float]]) -> list[tuple[Labels, float]]:
    return [
        ((key.name, shorten(client.client_id), instance_id.hex(), key.attributes), value)
        for instance_id, client in telemetry.series.read()
        for key, value in choose(client).items()
    ]

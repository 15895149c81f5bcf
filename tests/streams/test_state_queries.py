"""Queries over HTTP of an app whose partitions are in two state servers."""

from pathlib import Path

import pytest

from ottla.streams.queries import Query, QueryFailed
from ottla.streams.state.http import HttpServer, make_query_routes
from ottla.streams.state.keys import window_key
from ottla.streams.state.remote_stores import RemoteStores
from ottla.streams.state.views import partition_of
from ottla.testing import LocalBroker
from tests.streams.changelogs import TOKEN, TOPIC, Changelog, plan_store, run_server

PARTITIONS = 3
WINDOWS = "app-windows-changelog"


def test_rows_come_from_the_server_that_has_them(ottla_broker: LocalBroker, tmp_path: Path) -> None:
    # Also after another batch, and with one line if a server is away.
    words = [f"word-{number}" for number in range(40)]
    plans = {"counts": plan_store(), "windows": plan_store("windows", WINDOWS, "window")}
    ottla_broker.create_topic(TOPIC, partitions=PARTITIONS)
    ottla_broker.create_topic(WINDOWS, partitions=PARTITIONS)
    changelogs = [Changelog(ottla_broker, TOPIC, partition) for partition in range(PARTITIONS)]

    def write(count: int) -> dict[int, int]:
        ends = {}
        for partition, changelog in enumerate(changelogs):
            own = [word.encode() for word in words if partition_of(word.encode(), PARTITIONS) == partition]
            ends[partition] = changelog.write(dict.fromkeys(own, b'{"count":%d}' % count))
        return ends

    ends = write(1)
    of_first = partition_of(b"word-0", PARTITIONS)
    windows = {window_key(b"word-0", start): b'{"count":%d}' % start for start in (0, 60_000, 120_000)}
    windows_end = Changelog(ottla_broker, WINDOWS, of_first).write(windows)
    with (
        run_server(ottla_broker, tmp_path / "0") as (first, client_of_first),
        run_server(ottla_broker, tmp_path / "1") as (second, client_of_second),
    ):
        servers = (first, second)
        clients = (client_of_first, client_of_second)
        for number, client in enumerate(clients):
            own = {partition: end for partition, end in ends.items() if partition % 2 == number}
            client.assign(plans["counts"], own, PARTITIONS)
            client.assign(plans["windows"], {each: windows_end if each == of_first else 0 for each in own}, PARTITIONS)
            for partition, end in own.items():
                client.advance("counts", partition, end)
                client.advance("windows", partition, windows_end if partition == of_first else 0)
        stores = RemoteStores(lambda _, partition: servers[partition % 2].address, TOKEN, wait_s=0)
        views = stores.views(plans, {TOPIC: PARTITIONS, WINDOWS: PARTITIONS})
        http = HttpServer(make_query_routes(lambda: views), "127.0.0.1", 0, "secret")
        http.start()
        try:
            counts = Query(http.address, "counts", token="secret")
            assert [counts.get(word) for word in words] == [{"word": word, "count": 1} for word in words]
            assert [row["word"] for row in counts.all()] == sorted(words)
            assert [row["word"] for row in counts.range("word-2", "word-21")] == ["word-2", "word-20", "word-21"]
            windowed = Query(http.address, "windows", token="secret")
            assert [row["count"] for row in windowed.window("word-0", start=60_000)] == [60_000, 120_000]
            found = windowed.get("word-0", window=60_000)
            assert found is not None
            assert found["count"] == 60_000
            assert windowed.window("word-1") == []
            for partition, end in write(2).items():
                clients[partition % 2].advance("counts", partition, end)
            assert counts.get("word-7") == {"word": "word-7", "count": 2}
            second.kill()
            with pytest.raises(QueryFailed, match="cannot reach it"):
                list(counts.all())
        finally:
            http.stop()
            stores.close()

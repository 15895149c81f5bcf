"""Parts without a cluster: samples, topologies, partitions of keys, copies as programs, static files."""

import ast
import shlex
from hashlib import sha256
from pathlib import Path
from random import Random

import pytest

import ottla.console
from ottla.cli import command_parser
from ottla.client.partitioning import choose_partition, murmur2
from ottla.console import copying
from ottla.console.assets import STATIC, THIRD_PARTY
from ottla.console.caching import Cached
from ottla.console.console import Options
from ottla.console.facts.searching import Search
from ottla.console.facts.topologies import draw, parse
from ottla.console.history import SAMPLES_MAX, SECONDS, History, to_columns
from ottla.console.rendering import make_query, write_duration, write_number, write_rate, write_size, write_time

OPTIONS = Options(
    {
        "bootstrap.servers": "h:1",
        "request.timeout.ms": "77",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": 'org.apache.kafka.common.security.plain.PlainLoginModule required username="o\'neil" '
        'password="geheim";',
    }
)
COPIES = {
    "cluster": copying.copy_cluster(OPTIONS),
    "broker": copying.copy_broker(OPTIONS, 1),
    "topics": copying.copy_topics(OPTIONS, True),
    "topic": copying.copy_topic(OPTIONS, "a-b"),
    "settings": copying.copy_settings(OPTIONS, "a-b"),
    "groups": copying.copy_groups(OPTIONS),
    "group": copying.copy_group(OPTIONS, "it's $(a) group"),
    **{
        f"records {start} {part}": copying.copy_records(OPTIONS, "t", partition=part, start=start, number=5, limit=9)
        for start in ("newest", "oldest", "offset", "time")
        for part in (None, 2)
    },
    **{
        f"search {place} {is_pattern}": copying.copy_records(
            OPTIONS,
            "t",
            partition=None,
            start="newest",
            number=None,
            limit=9,
            search=Search("it's [a] | \\w", place, "", is_pattern),
        )
        for place in ("anywhere", "key", "value", "headers")
        for is_pattern in (False, True)
    },
    "topic groups": copying.copy_topic_groups(OPTIONS, "t", ["it's", "b"]),
    "produce": copying.copy_produce(OPTIONS, "t"),
    "transactions": copying.copy_transactions(OPTIONS),
    "access": copying.copy_access(OPTIONS),
    "apps": copying.copy_apps(OPTIONS),
    "app": copying.copy_app(OPTIONS, "a", "http://h:8080"),
    "app with a token": copying.copy_app(OPTIONS, "a", "http://h:8080", has_token=True),
    "app that does not run": copying.copy_registration(OPTIONS, "it's"),
    "store": copying.copy_store(OPTIONS, "a", "http://h:8080", "sold", [], 50),
    "key of a store": copying.copy_store(OPTIONS, "a", "http://h:8080", "sold", ["it's"], 50, has_token=True),
    "connectors": copying.copy_connectors("http://h:8083"),
    "connector": copying.copy_connectors("http://h:8083", "a b"),
    "connector with a login": copying.copy_connectors("https://ann:geheim@h:8083", "a b"),
}


@pytest.mark.parametrize("view", COPIES)
def test_copies_are_commands_and_programs(view: str) -> None:
    # The commands are those of `ottla`, whatever the names are; the programs can be parsed. No secret is in them.
    for copy in COPIES[view]:
        assert "geheim" not in copy.text
        if copy.name == "ottla":
            for line in copy.text.splitlines():
                words = shlex.split(line)
                begin = words.index("ottla")
                end = words.index("|", begin) if "|" in words[begin:] else len(words)
                parsed = command_parser({words[begin + 1]}).parse_args(words[begin + 1 : end])
                assert view.startswith("connector") or "sasl.username=o'neil" in parsed.client_settings
        else:
            ast.parse(copy.text)
            assert "request.timeout" not in copy.text
            is_told = "OTTLA_CLIENT_SASL_PASSWORD" in copy.text
            assert is_told or "bootstrap.servers" not in copy.text  # a program finds the password where ottla does


@pytest.mark.parametrize("view", COPIES)
def test_every_view_has_all_three(view: str) -> None:
    assert [copy.name for copy in COPIES[view]] == ["ottla", "Python", "PySpark"]


def test_the_static_files_are_those_of_their_authors() -> None:
    for name, digest in THIRD_PARTY.items():
        assert sha256((Path(STATIC) / name).read_bytes()).hexdigest() == digest, name
    files = [file for file in Path(ottla.console.__file__).parent.rglob("*") if file.suffix not in (".pyc", ".py")]
    assert sum(file.stat().st_size for file in files if file.is_file()) < 1_000_000
    scripts = {file.name for file in Path(STATIC).iterdir()} - set(THIRD_PARTY)
    assert {"console.js", "theme.js", "htmx.LICENSE.txt", "uplot.LICENSE.txt"} <= scripts
    assert "eval(" not in (Path(STATIC) / "console.js").read_text()


def test_keys_go_where_the_java_client_sends_them() -> None:
    # The hashes are those of Kafka's own test of its hash function.
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536, b"": 275646681}
    for key, signed in known.items():
        assert murmur2(key) == signed & 0xFFFFFFFF, key
    assert choose_partition(b"foobar", 10, Random(1)) == (-790332482 & 0x7FFFFFFF) % 10
    assert {choose_partition(None, 3, Random(seed)) for seed in range(50)} == {0, 1, 2}


def test_samples_and_rates() -> None:
    history = History()
    for second in range(0, 60, 5):
        history.add("topic-end", "t", second * 1000, second * 100)
    assert history.rate("topic-end", "t") == 100.0
    assert {sample.value for sample in history.rates("topic-end", "t")} == {100.0}
    assert history.rate("topic-end", "other") is None
    history.add("topic-end", "t", 60_000, 0)  # the topic was created again
    assert history.rates("topic-end", "t")[-1].value == 0.0


def test_an_hour_is_kept() -> None:
    history = History()
    for number in range(SAMPLES_MAX + 10):
        history.add("k", "a", number * 5000, number)
    assert len(history.series("k", "a")) == SAMPLES_MAX
    history.want("k", "b", 0)
    assert history.wanted("k", 1000) == ["b"]
    assert history.wanted("k", SECONDS * 1000) == []
    history.drop_old((SAMPLES_MAX + 10) * 5000 + SECONDS * 1000)
    assert history.series("k", "a") == []


def test_columns_of_a_chart_share_their_times() -> None:
    history = History()
    history.add("a", "", 1000, 1)
    history.add("a", "", 2000, 2)
    history.add("b", "", 2000, 5)
    assert to_columns([history.series("a", ""), history.series("b", "")]) == [[1.0, 2.0], [1, 2], [None, 5]]


def test_a_cached_value_is_read_when_it_is_too_old() -> None:
    now, numbers = [0.0], iter(range(1, 10))
    cached: Cached[int] = Cached(lambda: next(numbers), lambda: now[0], lambda value: 5)
    assert (cached.get(), cached.get()) == (1, 1)
    now[0] = 6
    assert cached.get(10) == 1
    assert cached.get() == 2
    cached.forget()
    assert cached.get() == 3


DESCRIPTION = """app shop

subtopology orders
  reads    orders
  reads    customers as a table
  Spark    one Column step
  step     join (store customers)
  writes   shop-repartition by country

subtopology totals
  reads    shop-repartition
  step     count
  store    totals, kept in shop-totals-changelog
  writes   totals

topics of the app
  shop-repartition
"""


def test_a_topology_is_drawn_from_left_to_right() -> None:
    orders, totals = parse(DESCRIPTION)
    assert orders.reads == ["orders", "customers"]
    assert totals.writes == ["totals"]
    drawing = draw(DESCRIPTION)
    assert drawing is not None
    boxes = {box.title: box for box in drawing.boxes}
    order = ["customers", "shop-repartition", "totals"]
    assert boxes["customers"].x < boxes["shop-repartition"].x
    assert boxes["shop-repartition"].x < max(box.x for box in drawing.boxes if box.title == order[2])
    assert len(drawing.arrows) == 5
    assert draw("nothing here") is None
    cycle = draw("subtopology a\n  reads    x\n  writes   y\nsubtopology b\n  reads    y\n  writes   x\n")
    assert cycle is not None


def test_numbers_for_people() -> None:
    assert write_number(1234567) == "1\u202f234\u202f567"
    assert [write_size(size) for size in (0, 1023, 1536, 5 << 30)] == ["0 B", "1023 B", "1.5 KiB", "5.0 GiB"]
    assert [write_rate(rate) for rate in (0.0, 0.5, 1234.4)] == ["0/s", "0.5/s", "1\u202f234/s"]
    assert [write_duration(each) for each in (0, 0.5, 5, 60, 600, 7200, 10**6)] == [
        "0 s",
        "500 ms",
        "5.0 s",
        "60 s",
        "10 min",
        "2.0 h",
        "12 days",
    ]
    assert write_time(1_700_000_000_123) == "2023-11-14 22:13:20.123"
    assert write_time(1 << 62) == str(1 << 62)
    assert make_query({"q": "a b", "page": "2"}, page=None) == "?q=a+b"

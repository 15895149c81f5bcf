"""The JMS connectors die at every step of their protocol, without Spark and with real brokers. Every step is tried."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from stomp.protocol import Protocol12

from ottla.connect.connectors.jms import jms_sink
from ottla.connect.connectors.jms.jms_sink import ActiveMQSink
from ottla.connect.connectors.jms.jms_source import ActiveMQSource
from ottla.connect.connectors.jms.session import Session
from ottla.connect.running import sink_tasks, writing
from ottla.testing import LocalBroker
from ottla.testing.security import make_certificates
from tests.connect.jms_brokers import JmsBroker, make_artemis, make_classic, make_classic_with_tls, running_broker
from tests.connect.local_runs import count_steps, run_until_death
from tests.connect.runs import count_records, read_group, read_records
from tests.spark.topics import send

pytestmark = pytest.mark.long

SOURCE_STEPS: Final[Sequence[tuple[Any, str]]] = (
    (Protocol12, "subscribe"),
    (writing.TransactionWriter, "write"),
    (writing.TransactionWriter, "write_offsets"),
    (writing, "end_transaction"),
    (Protocol12, "ack"),
)
SINK_STEPS: Final[Sequence[tuple[Any, str]]] = (
    (Protocol12, "begin"),
    (Protocol12, "send"),
    (Protocol12, "commit"),
    (sink_tasks, "commit_offsets_in_transaction"),
    (writing, "end_transaction"),
)
ROWS: Final = 3


@pytest.fixture(params=[make_classic, make_classic_with_tls, make_artemis])
def mq(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JmsBroker]:
    with running_broker(request.param(tmp_path)) as found:
        yield found


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Session]]:
    """The sessions that are made. Those of a process that dies are cut off, as its sockets would be."""
    made: list[Session] = []
    original = Session.__init__

    def remember(self: Session, *arguments: Any) -> None:
        original(self, *arguments)
        made.append(self)

    monkeypatch.setattr(Session, "__init__", remember)
    yield made
    cut_off(made)


def cut_off(sessions: list[Session]) -> None:
    jms_sink._connect.cache_clear()
    for each in sessions:
        each.close()
    sessions.clear()


def make_settings(mq: JmsBroker, name: str, **more: str) -> dict[str, str]:
    return {
        "name": name,
        "activemq.url": mq.url,
        "activemq.username": "ottla",
        "activemq.password": "hush-hush",
        "jms.destination.name": name,
        "ssl.truststore.location": make_certificates().authority_file if "ssl" in mq.url else "",
        **{key.replace("_", "."): text for key, text in more.items()},
    }


def try_every_step(run: Callable[[str, int | None], int], name: str) -> None:
    for deadly in range(run(f"{name}-lives", None)):
        run(f"{name}-dies-{deadly}", deadly)


def test_deaths_of_the_source(broker: LocalBroker, mq: JmsBroker, sessions: list[Session], tmp_path: Path) -> None:
    """Each message is written once."""

    def run(name: str, deadly: int | None) -> int:
        config = make_settings(mq, name, kafka_topic=name, batch_size="2")
        mq.send(name, "text", ROWS)
        with count_steps(SOURCE_STEPS, deadly) as steps:
            run_until_death(broker, ActiveMQSource, config, lambda: count_records(broker, name) >= ROWS)
        cut_off(sessions)
        mq.send(name, "text", 1, ROWS)  # behind what comes again
        run_until_death(broker, ActiveMQSource, config, lambda: count_records(broker, name) > ROWS)
        cut_off(sessions)
        texts = Counter(each["value"].decode().partition("text=")[2][:6] for each in read_records(broker, name))
        assert texts == Counter(f"text {n}" for n in range(ROWS + 1)), deadly
        assert mq.take(name, 0) == [], deadly
        return steps.count

    try_every_step(run, f"{tmp_path.name}-source".replace("_", "-"))


def test_deaths_of_the_sink(broker: LocalBroker, mq: JmsBroker, sessions: list[Session], tmp_path: Path) -> None:
    """Each record arrives, in order. All come twice if the broker has taken them and the offsets were not committed;
    Artemis leaves out what it has."""
    repeated: list[int] = []

    def run(name: str, deadly: int | None) -> int:
        broker.create_topic(name, partitions=1)
        send(broker, name, [{"value": str(n)} for n in range(ROWS)])
        config = make_settings(mq, name, topics=name, jms_forward_kafka_metadata="true")
        with count_steps(SINK_STEPS, deadly) as steps:
            run_until_death(broker, ActiveMQSink, config)
        cut_off(sessions)
        run_until_death(broker, ActiveMQSink, config)
        cut_off(sessions)
        assert list(read_group(broker, name).values()) == [ROWS]
        offsets = [int(line.partition("KAFKA_OFFSET=")[2].split()[0]) for line in mq.take(name, ROWS)]
        if offsets != [*range(ROWS)]:
            assert deadly is not None
            repeated.append(deadly)
            assert offsets[:ROWS] == [*range(ROWS)], deadly
            assert offsets[ROWS:] == [0], deadly  # the receiver stops at the first one too many
            mq.take(name, ROWS - 1)
        return steps.count

    try_every_step(run, f"{tmp_path.name}-sink".replace("_", "-"))
    assert bool(repeated) == ("artemis" not in mq.name), repeated

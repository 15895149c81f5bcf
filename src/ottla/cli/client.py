"""What every command that talks to a broker shares: its options, its client, and words for what goes wrong.

Questions are asked through the client library's asynchronous administration calls. So a broker that is away is noticed
within seconds, and Ctrl-C at once; nothing is logged by the library, the one line on stderr is ours.
"""

import argparse
import math
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ottla.cli.command_error import USAGE_ERROR, CommandError

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
    from confluent_kafka.admin import ClusterMetadata, DescribeClusterResult, OffsetSpec, TopicDescription

    from ottla.client.connection import Connection

T = TypeVar("T")
K = TypeVar("K")
T_co = TypeVar("T_co", covariant=True)

DEFAULT_BOOTSTRAP = "localhost:9092"
BOOTSTRAP_VARIABLE = "OTTLA_BOOTSTRAP"
CONNECT_S = 5.0
REFUSED_S = 1.5  # a few attempts: another address of the same name may answer, or the broker is about to be there
OPERATION_S = 30.0
GLANCE_S = 0.05

_ADDRESS = re.compile(r"^\S+/\S+: ")
_STATE = re.compile(r" \(after .*\)$", re.DOTALL)


def add_client_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-b",
        "--bootstrap",
        metavar="HOST:PORT",
        default=os.environ.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP,
        help=f"where to find the cluster (default: ${BOOTSTRAP_VARIABLE} or {DEFAULT_BOOTSTRAP})",
    )
    parser.add_argument(
        "-X",
        action="append",
        default=[],
        dest="client_settings",
        metavar="KEY=VALUE",
        help="a setting of librdkafka, for example security.protocol=SSL; may be repeated",
    )


def create_action_adder(parser: argparse.ArgumentParser) -> Callable[[str, str], argparse.ArgumentParser]:
    """What adds an action to a command, by its name and purpose; each of them talks to a cluster."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    def action(name: str, purpose: str) -> argparse.ArgumentParser:
        subparser = actions.add_parser(name, help=purpose, description=f"{purpose[0].upper()}{purpose[1:]}.")
        add_client_arguments(subparser)
        return subparser

    return action


def pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    """`key=value` arguments as a table."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise CommandError(f"{option}: {text!r} is not key=value", USAGE_ERROR)
        found[key.strip()] = value
    return found


def explain(error: "KafkaError") -> str:
    """What a client library's error says, in one line, without the library's own particulars."""
    text = _STATE.sub("", _ADDRESS.sub("", " ".join(error.str().split())))
    return text.removeprefix("Broker: ").removeprefix("Local: ").removesuffix(".")


def to_command_error(error: "KafkaException", what: str) -> CommandError:
    return CommandError(f"{what}: {explain(error.args[0])}")


class ConnectionErrors:
    """The errors that a client reported by itself: the way to the brokers, not the answer to a question."""

    def __init__(self) -> None:
        self.latest = ""
        self.give_up_at_s = math.inf
        """When to give up: a while after it was first said that no broker can be reached."""

    def __call__(self, error: "KafkaError") -> None:
        from confluent_kafka import KafkaError

        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.give_up_at_s = min(self.give_up_at_s, time.monotonic() + REFUSED_S)
        else:
            self.latest = explain(error).rpartition(" failed: ")[2]

    def forget(self) -> None:
        """A broker has answered."""
        self.latest, self.give_up_at_s = "", math.inf


class Answer(Protocol[T_co]):
    """A future of the client library."""

    def result(self, timeout: float | None = None) -> T_co: ...


class CommandClient:
    """A cluster that has answered once. Made from a command's options; every method waits for its answer."""

    def __init__(self, options: argparse.Namespace) -> None:
        from confluent_kafka.admin import AdminClient

        self._given = {"bootstrap.servers": options.bootstrap} | pairs(options.client_settings, "-X")
        self.address = self._given["bootstrap.servers"]
        if not self.address.strip(", "):
            raise CommandError("--bootstrap: no broker is named", USAGE_ERROR)
        self.connection_errors = ConnectionErrors()
        self.admin = self._made(AdminClient, {})
        self.brokers = self._reach()

    def create_producer(self, settings: Mapping[str, object]) -> "Producer":
        """A producer with these settings; what was given with -X is stronger."""
        from confluent_kafka import Producer

        return self._made(Producer, settings)

    def create_consumer(self, settings: Mapping[str, object]) -> "Consumer":
        """A consumer that is in no group, though the library insists on a name for one."""
        from confluent_kafka import Consumer

        return self._made(Consumer, {"group.id": "ottla", "enable.auto.commit": False, **settings})

    def ask(self, question: Callable[..., dict[K, Any]], *arguments: object, **options: object) -> dict[K, Any]:
        """The futures of a question to many; a question that the library itself finds wrong is refused."""
        from confluent_kafka import KafkaException

        try:
            return question(*arguments, request_timeout=OPERATION_S, **options)
        except KafkaException as error:
            raise CommandError(explain(error.args[0]), USAGE_ERROR) from None
        except (ValueError, TypeError) as error:
            raise CommandError(str(error), USAGE_ERROR) from None

    def wait_for(self, future: Answer[T], what: str) -> T:
        """The answer to a question; `what` stands before the reason if it is an error."""
        from confluent_kafka import KafkaException

        try:
            return future.result(OPERATION_S)
        except KafkaException as error:
            raise to_command_error(error, what) from None
        except TimeoutError:
            raise CommandError(f"{what}: no answer within {OPERATION_S:.0f} s") from None

    def fetch_metadata(self) -> "ClusterMetadata":
        """All topics and brokers."""
        from confluent_kafka import KafkaException

        try:
            return self.admin.list_topics(timeout=OPERATION_S)
        except KafkaException as error:
            raise to_command_error(error, "the list of topics") from None

    def describe_topics(self, topics: list[str]) -> "dict[str, TopicDescription | None]":
        """What the cluster knows of these topics; None for one that does not exist. None of them is created by this."""
        from confluent_kafka import KafkaError, KafkaException, TopicCollection

        asked = self.ask(self.admin.describe_topics, TopicCollection(topics))
        found: dict[str, TopicDescription | None] = {}
        for topic, future in asked.items():
            try:
                found[topic] = future.result(OPERATION_S)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise to_command_error(error, f"topic {topic!r}") from None
                found[topic] = None
        return found

    def describe_topic(self, name: str) -> "TopicDescription":
        description = self.describe_topics([name])[name]
        if description is None:
            raise CommandError(f"there is no topic {name!r} at {self.address}")
        return description

    def list_offsets(self, topic: str, partitions: Iterable[int], spec: "OffsetSpec") -> dict[int, int]:
        """By partition; -1 where no record is as new as the time that the spec names. Only what is committed counts."""
        from confluent_kafka import IsolationLevel, TopicPartition

        wanted = {TopicPartition(topic, partition): spec for partition in partitions}
        if not wanted:
            return {}
        asked = self.ask(self.admin.list_offsets, wanted, isolation_level=IsolationLevel.READ_COMMITTED)
        return {
            place.partition: self.wait_for(future, f"offsets of partition {place.partition}").offset
            for place, future in asked.items()
        }

    def connection(self, broker_id: int) -> "Connection":
        """A connection of our own to one broker, for what the client library cannot ask."""
        from random import SystemRandom

        from ottla.client.connection import Connection, Security, Unreachable

        broker = self.fetch_metadata().brokers.get(broker_id)
        if broker is None:
            raise CommandError(f"broker {broker_id} is not in the cluster at {self.address}")
        try:
            return Connection(str(broker.host), broker.port, Security.of(self._given), SystemRandom(), OPERATION_S)
        except (Unreachable, ValueError) as error:
            raise CommandError(str(error)) from None

    def coordinator(self, kind: str, name: str) -> "Connection":
        """A connection to the broker that looks after a `group` or a `transaction`."""
        from ottla.errors import ErrorCode
        from ottla.wire.messages.find_coordinator import FindCoordinatorRequest

        request = FindCoordinatorRequest(key_type=int(kind == "transaction"), coordinator_keys=[name])
        deadline_s = time.monotonic() + OPERATION_S
        while True:
            with self.connection(self.brokers[0]) as connection:
                found = connection.ask(request).coordinators[0]
            if not found.error_code:
                return self.connection(found.node_id)
            if time.monotonic() > deadline_s or found.error_code != ErrorCode.COORDINATOR_NOT_AVAILABLE:
                raise CommandError(f"{kind} {name!r}: {ErrorCode(found.error_code).name}")
            time.sleep(GLANCE_S)

    def unreachable(self, reason: str) -> CommandError:
        return CommandError(f"no Kafka broker answers at {self.address}: {reason}")

    def _made(self, kind: "type[T]", settings: Mapping[str, object]) -> T:
        from confluent_kafka import KafkaException

        quiet = {"log_level": 0, "error_cb": self.connection_errors}
        try:
            return kind({**quiet, **settings, **self._given})  # type: ignore[call-arg]
        except KafkaException as error:
            raise CommandError(f"-X: {explain(error.args[0])}", USAGE_ERROR) from None

    def _reach(self) -> list[int]:
        """Wait for the first answer: the ids of the brokers."""
        from confluent_kafka import KafkaException

        asked: Answer[DescribeClusterResult] = self.admin.describe_cluster(request_timeout=CONNECT_S)
        deadline_s = time.monotonic() + CONNECT_S
        while True:
            try:
                return [node.id for node in asked.result(GLANCE_S).nodes]
            except TimeoutError:
                self.admin.poll(0)
                if time.monotonic() >= min(deadline_s, self.connection_errors.give_up_at_s):
                    reason = self.connection_errors.latest or f"no answer within {CONNECT_S:.0f} s"
                    raise self.unreachable(reason) from None
            except KafkaException as error:
                raise self.unreachable(self.connection_errors.latest or explain(error.args[0])) from None

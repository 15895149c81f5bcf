"""What every command that talks to brokers shares: its options, its clients, and how their errors are explained.

A command uses one of two clients. Those that only ask and administrate use Ottla's own, `ottla.client`
(`open_own_client`): confluent-kafka alone takes longer to import than such a command may take. Those that produce and
consume records, with `topic create` and `topic delete`, have a `CommandClient`, which stays with confluent-kafka for
topics and offsets too, because importing both clients makes `consume` a sixth slower to start. Its calls are
asynchronous, so Ctrl-C works while a command waits and a broker that does not answer is noticed within seconds. The
library logs nothing: the one line on stderr is the command's own.
"""

import argparse
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ottla.cli.client_settings import (
    BOOTSTRAP,
    SETTING_NAMES,
    add_client_arguments,
    make_library_settings,
    read_client_settings,
)
from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.pairs import parse_pairs
from ottla.cli.suggestions import suggest

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
    from confluent_kafka.admin import ClusterMetadata, DescribeClusterResult, OffsetSpec, TopicDescription

    from ottla.client.client import Client
    from ottla.client.connection import Unreachable
    from ottla.wire.messages.metadata import MetadataResponseTopic

T = TypeVar("T")
K = TypeVar("K")
T_co = TypeVar("T_co", covariant=True)

CONNECT_S = 5.0
REFUSED_S = 1.5  # a few attempts: another address of the same name may answer, or the broker is about to be there
PROBE_S = 1.0
OPERATION_S = 30.0
"""How long a broker may take for what it is asked to do."""
OPERATION_MS = int(OPERATION_S * 1000)
REQUEST_S = OPERATION_S + 5.0
"""How long a command waits for an answer. It is longer than OPERATION_S, so that the broker can say why it failed."""
RETRY_S = 10.0
GLANCE_S = 0.05

_TEXT_OPTIONS = (
    *(
        "bootstrap",
        "client_settings",
        "topic",
        "topics",
        "pattern",
        "name",
        "names",
        "settings",
        "assignments",
        "unset",
        "keys",
    ),
    *("principals", "group", "transactional_id", "delegation_token", "user_resource", "host", "user", "client", "ip"),
)
"""The options that are given to confluent-kafka as text. Keys, values and delimiters may be any bytes."""

_UNKNOWN_SETTING = re.compile(r'No such configuration property: "(.+)"')
_ADDRESS = re.compile(r"^\S+/\S+: ")
_STATE = re.compile(r" \(after .*\)$", re.DOTALL)


def create_action_adder(parser: argparse.ArgumentParser) -> Callable[[str, str], argparse.ArgumentParser]:
    """A function that adds an action to a command, by its name and purpose, with the options of a client."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    def add_action(name: str, purpose: str) -> argparse.ArgumentParser:
        subparser = actions.add_parser(name, help=purpose, description=f"{purpose[0].upper()}{purpose[1:]}.")
        add_client_arguments(subparser)
        return subparser

    return add_action


def require_text(*texts: str) -> None:
    """Raises CommandError for text that is not UTF-8: given such a name, confluent-kafka ends the process."""
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise CommandError(f"{text!r} is not UTF-8 text", USAGE_ERROR) from None


def explain(error: "KafkaError") -> str:
    """The message of a confluent-kafka error in one line, without librdkafka's internal details."""
    text = _STATE.sub("", _ADDRESS.sub("", " ".join(error.str().split())))
    return text.removeprefix("Broker: ").removeprefix("Local: ").removesuffix(".")


def is_about_unused_group(error: "KafkaError") -> bool:
    """Whether this is the refusal of a group to a consumer that joins none.

    librdkafka requires a group.id, and looks for the coordinator of that group although nothing is read through it.
    Who may read a topic and no group gets this event sooner or later.
    """
    from ottla.errors import ErrorCode

    return error.code() == ErrorCode.GROUP_AUTHORIZATION_FAILED


def explain_code(code: int, message: str | None = None) -> str:
    """An error of a broker's answer: the broker's message, or the words of the code's name."""
    from ottla.client.connection import name_error

    return message.removesuffix(".") if message else name_error(code).replace("_", " ").capitalize()


def to_command_error(error: "KafkaException", what: str) -> CommandError:
    return CommandError(f"{what}: {explain(error.args[0])}")


def _suggest_setting(name: str) -> str:
    return suggest(name, SETTING_NAMES)


class ConnectionErrors:
    """Errors that librdkafka reports about its connections, outside of any request. Used as its `error_cb`."""

    def __init__(self) -> None:
        self.latest = ""
        self.give_up_at_s = math.inf
        """When to stop waiting: REFUSED_S after librdkafka first reported that all brokers are down."""

    def __call__(self, error: "KafkaError") -> None:
        from confluent_kafka import KafkaError

        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.give_up_at_s = min(self.give_up_at_s, time.monotonic() + REFUSED_S)
        else:
            self.latest = explain(error).rpartition(" failed: ")[2]

    def clear(self) -> None:
        """Forget the errors, because a broker has answered."""
        self.latest, self.give_up_at_s = "", math.inf


class Answer(Protocol[T_co]):
    """A future of confluent-kafka."""

    def result(self, timeout: float | None = None) -> T_co: ...


class ClusterAccess:
    """The way to a cluster, from the options of a command."""

    def __init__(self, options: argparse.Namespace) -> None:
        for name in _TEXT_OPTIONS:
            given = getattr(options, name, None) or ()
            require_text(*([given] if isinstance(given, str) else given))
        self.settings, self._optional = read_client_settings(options)
        """By the names that the user gave."""
        self.address = self.settings[BOOTSTRAP]
        if not self.address.strip(", "):
            raise CommandError("--bootstrap: no broker is named", USAGE_ERROR)

    @contextmanager
    def open_own_client(self, *, wait: bool = False) -> "Iterator[Client]":
        """Ottla's own client with these settings. With `wait` a broker has answered, or it is a CommandError."""
        from ottla.client.client import Client

        defaults = {
            "default.api.timeout.ms": RETRY_S,
            "socket.connection.setup.timeout.ms": CONNECT_S,
            "socket.timeout.ms": REQUEST_S,  # request.timeout.ms counts more, if the user gives that
        }
        try:
            client = Client({**{name: str(int(limit_s * 1000)) for name, limit_s in defaults.items()}, **self.settings})
        except ValueError as error:
            raise CommandError(str(error), USAGE_ERROR) from None
        with closing(client):
            if wait:
                self._wait_for_a_broker(client)
            yield client

    def _wait_for_a_broker(self, client: "Client") -> None:
        from ottla.client.connection import NotAuthenticated, Unreachable

        backoff = client.start_backoff(REFUSED_S)
        while True:
            try:
                client.connect_any()
                return
            except Unreachable as error:
                if isinstance(error, NotAuthenticated) or not backoff.pause():
                    raise explain_unreachable(error) from None


@contextmanager
def open_own_client(options: argparse.Namespace) -> "Iterator[Client]":
    """Ottla's own client, for a command that needs no other. CommandError if no broker answers."""
    access = ClusterAccess(options)
    if not all(name in SETTING_NAMES for name in parse_pairs(options.client_settings, "-X")):
        CommandClient(options)  # librdkafka knows which settings there are
    with access.open_own_client(wait=True) as client:
        yield client


def find_topics(own: "Client", names: Iterable[str]) -> "dict[str, MetadataResponseTopic]":
    """The metadata of these topics. CommandError if one does not exist; none is created."""
    from ottla.client.connection import name_error
    from ottla.errors import ErrorCode

    asked = list(dict.fromkeys(names))
    if "" in asked:
        raise CommandError("the name of a topic is empty", USAGE_ERROR)
    answered = {topic.name: topic for topic in own.fetch_topics(asked)}
    found = {name: answered[name] for name in asked}
    missing = [name for name, topic in found.items() if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    if missing:
        raise explain_no_topic(own, *missing)
    reasons: dict[int, str] = {
        ErrorCode.INVALID_TOPIC_EXCEPTION: "no topic can have this name",
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: "this user may not describe it (ottla acl list)",
    }
    for name, topic in found.items():
        if topic.error_code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
            raise CommandError(f"topic {name!r}: {reasons.get(topic.error_code) or name_error(topic.error_code)}")
    return found


def find_topic(own: "Client", name: str) -> "MetadataResponseTopic":
    return find_topics(own, [name])[name]


def explain_no_topic(own: "Client", *names: str) -> CommandError:
    """The error for topics that do not exist, with the nearest one that does."""
    hint = suggest(names[0], (topic.name or "" for topic in own.fetch_topics()))
    return CommandError(f"there is no topic {', '.join(map(repr, names))} at {own.raw_settings[BOOTSTRAP]}{hint}")


def explain_unreachable(error: "Unreachable") -> CommandError:
    from ottla.client.connection import NotAuthenticated, NotListening

    if isinstance(error, NotAuthenticated):
        return CommandError(f"cannot connect to {error}")
    if isinstance(error, NotListening):
        return CommandError(f"cannot connect to {error}. Is a broker running there? (ottla up)")
    return CommandError(f"cannot connect to {error}. Is that the address of a Kafka broker?")


class CommandClient(ClusterAccess):
    """The clients of one command. The constructor returns when a broker has answered."""

    def __init__(self, options: argparse.Namespace) -> None:
        from confluent_kafka.admin import AdminClient

        super().__init__(options)
        self._library_settings = make_library_settings(self.settings)
        self.connection_errors = ConnectionErrors()
        self.admin = self._create(AdminClient, {})
        self._wait_for_brokers()

    def create_producer(self, settings: Mapping[str, object]) -> "Producer":
        """A producer with these settings; those given with -X win."""
        from confluent_kafka import Producer

        return self._create(Producer, settings)

    def create_consumer(self, settings: Mapping[str, object]) -> "Consumer":
        """A consumer that joins no group; librdkafka requires a group.id nevertheless."""
        from confluent_kafka import Consumer

        return self._create(Consumer, {"group.id": "ottla", "enable.auto.commit": False, **settings})

    def ask(self, method: Callable[..., dict[K, Any]], *arguments: object, **options: object) -> dict[K, Any]:
        """Call a method of the admin client that returns futures. Arguments that it refuses are a usage error."""
        from confluent_kafka import KafkaException

        try:
            return method(*arguments, request_timeout=REQUEST_S, **options)
        except KafkaException as error:
            raise CommandError(explain(error.args[0]), USAGE_ERROR) from None
        except (ValueError, TypeError) as error:
            raise CommandError(str(error), USAGE_ERROR) from None

    def change(self, method: Callable[..., dict[K, Any]], *arguments: object, **options: object) -> dict[K, Any]:
        """Like `ask`, for a method that changes something and tells the broker how long that may take."""
        return self.ask(method, *arguments, operation_timeout=OPERATION_S, **options)

    def wait_for(self, future: Answer[T], what: str) -> T:
        """The result of a future. A CommandError begins with `what`."""
        from confluent_kafka import KafkaException

        try:
            return future.result(REQUEST_S)
        except KafkaException as error:
            raise to_command_error(error, what) from None
        except TimeoutError:
            raise CommandError(f"{what}: no answer within {REQUEST_S:.0f} s") from None

    def fetch_metadata(self) -> "ClusterMetadata":
        """All topics and brokers."""
        from confluent_kafka import KafkaException

        try:
            return self.admin.list_topics(timeout=OPERATION_S)
        except KafkaException as error:
            raise to_command_error(error, "cannot list topics") from None

    def describe_topics(self, topics: list[str]) -> "dict[str, TopicDescription | None]":
        """The descriptions of these topics; None for one that does not exist. Never creates a topic."""
        from confluent_kafka import KafkaError, KafkaException, TopicCollection

        require_text(*topics)
        asked = self.ask(self.admin.describe_topics, TopicCollection(topics))
        found: dict[str, TopicDescription | None] = {}
        for topic, future in asked.items():
            try:
                found[topic] = future.result(REQUEST_S)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise to_command_error(error, f"topic {topic!r}") from None
                found[topic] = None
        return found

    def describe_topic(self, name: str) -> "TopicDescription":
        """Raises CommandError if the topic does not exist."""
        description = self.describe_topics([name])[name]
        if description is None:
            raise self.explain_no_topic(name)
        return description

    def explain_no_topic(self, *names: str) -> CommandError:
        with self.open_own_client() as own:
            return explain_no_topic(own, *names)

    def list_offsets(
        self, topic: str, partitions: Iterable[int], spec: "OffsetSpec", *, uncommitted: bool = False
    ) -> dict[int, int]:
        """The offset of each partition; -1 where no record is as new as the spec's time.

        Without `uncommitted`, a partition ends where its first open transaction begins.
        """
        from confluent_kafka import IsolationLevel, TopicPartition

        wanted = {TopicPartition(topic, partition): spec for partition in partitions}
        if not wanted:
            return {}
        level = IsolationLevel.READ_UNCOMMITTED if uncommitted else IsolationLevel.READ_COMMITTED
        asked = self.ask(self.admin.list_offsets, wanted, isolation_level=level)
        return {
            where.partition: self.wait_for(future, f"offsets of {topic}-{where.partition}").offset
            for where, future in asked.items()
        }

    def explain_no_broker(self, reason: str) -> CommandError:
        """The error for a cluster of which no broker answers.

        librdkafka says little about what it met at an address ("Failed while waiting for controller"), so Ottla's own
        client connects once more to find out. `reason` is the fallback.
        """
        from ottla.client.client import Client
        from ottla.client.connection import Unreachable

        try:
            client = Client({**self.settings, "request.timeout.ms": str(int(min(CONNECT_S, PROBE_S) * 1000))})
            with closing(client):
                client.connect_any()
        except ValueError as error:  # settings that only librdkafka understands
            hint = ". An address is HOST:PORT" if str(error).startswith(BOOTSTRAP) else ""
            return CommandError(f"no broker answers at {self.address}: {reason}{hint}")
        except Unreachable as error:
            return explain_unreachable(error)
        return CommandError(f"no broker answers at {self.address}: {reason}")

    def _create(self, kind: "type[T]", settings: Mapping[str, object]) -> T:
        from confluent_kafka import KafkaException

        quiet = {"log_level": 0, "error_cb": self.connection_errors}
        while True:
            try:
                return kind({**quiet, **settings, **self._library_settings})  # type: ignore[call-arg]
            except KafkaException as error:
                unknown = _UNKNOWN_SETTING.match(error.args[0].str())
                if unknown is None or unknown[1] not in self._optional:
                    hint = _suggest_setting(unknown[1]) if unknown is not None else ""
                    raise CommandError(f"-X: {explain(error.args[0])}{hint}", USAGE_ERROR) from None
                del self._library_settings[unknown[1]]

    def _wait_for_brokers(self) -> None:
        from confluent_kafka import KafkaException

        asked: Answer[DescribeClusterResult] = self.admin.describe_cluster(request_timeout=CONNECT_S)
        deadline_s = time.monotonic() + CONNECT_S
        while True:
            try:
                asked.result(GLANCE_S)
                return
            except TimeoutError:
                self.admin.poll(0)
                if time.monotonic() >= min(deadline_s, self.connection_errors.give_up_at_s):
                    reason = self.connection_errors.latest or f"no answer within {CONNECT_S:.0f} s"
                    raise self.explain_no_broker(reason) from None
            except KafkaException as error:
                raise self.explain_no_broker(self.connection_errors.latest or explain(error.args[0])) from None

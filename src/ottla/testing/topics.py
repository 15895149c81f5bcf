"""Creates topics without a client library and its threads."""

from collections.abc import Mapping
from contextlib import closing

from ottla.errors import ErrorCode, KafkaError
from ottla.testing.launch import PATIENCE_S
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest


def create_topic(
    client_settings: Mapping[str, str],
    name: str,
    partitions: int,
    configs: Mapping[str, str],
    replication_factor: int = -1,
) -> None:
    """Creates a topic, with default.replication.factor replicas if none is given. KafkaError if it is refused."""
    from ottla.client.client import Client

    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=int(PATIENCE_S * 1000))
    with closing(Client({**client_settings, "request.timeout.ms": str(int(PATIENCE_S * 1000))})) as client:
        (result,) = client.connect_any().ask(request).topics
    if result.error_code:
        raise KafkaError(ErrorCode(result.error_code), result.error_message or "")

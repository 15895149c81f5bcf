"""Which settings of a connector have no effect."""

from ottla.connect.connector import ConnectorContext
from ottla.connect.connectors.mirror.mirror_heartbeat import MirrorHeartbeat
from ottla.connect.connectors.s3.s3_sink import S3Sink
from ottla.connect.running.making import RunConfig
from ottla.connect.worker.runs import ConnectorSpec


def list_unknown(kind: type, **given: str) -> list[str]:
    config = {"name": "c", "connector.class": "C", **{name.replace("_", "."): text for name, text in given.items()}}
    spec = ConnectorSpec("c", config, {}, ConnectorContext("c", "g", 1, {}))
    return RunConfig.read(spec, config, kind).list_unknown()


def test_settings_that_nobody_declares_are_found() -> None:
    """Declared ones, those of converters, transformations and clients, and known ones with harmless values are not."""
    right = {"s3_bucket_name": "b", "flush_size": "1", "topics": "t", "schema_compatibility": "NONE"}
    more = {"value_converter_schemas_enable": "false", "transforms_a_type": "T", "consumer_override_client_id": "x"}
    assert list_unknown(S3Sink, **right, **more, s3_retry_backoff_ms="200", flush_sise="2") == [
        "flush.sise",
        "s3.retry.backoff.ms",
    ]


def test_a_mirror_may_have_the_settings_of_the_others() -> None:
    given = {"source_cluster_alias": "A", "source_consumer_x": "1", "groups": "g", "topics_blacklist": "t"}
    assert list_unknown(MirrorHeartbeat, **given) == ["topics.blacklist"]

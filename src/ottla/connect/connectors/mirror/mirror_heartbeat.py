"""MirrorHeartbeat: writes a record to the topic `heartbeats` every so many seconds.

The topic is mirrored like any other. A client that finds no new heartbeats in the mirrored topic knows that mirroring
has stopped.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from ottla.client.backoff import now_ms
from ottla.connect.connector import ConnectorContext, Part, Source, SourceBatch, SourceOffset
from ottla.connect.connectors.mirror import clusters
from ottla.connect.connectors.mirror.formats import encode_heartbeat, to_raw
from ottla.connect.connectors.mirror.mirror_settings import HEARTBEAT_SETTINGS, PREFIXES
from ottla.connect.connectors.mirror.policy import HEARTBEATS
from ottla.connect.connectors.mirror.timers import Timer
from ottla.connect.settings.definition import Settings
from ottla.connect.worker.topics import TopicForm, create_store_topic


class MirrorHeartbeat(Source):
    settings: ClassVar[Settings] = HEARTBEAT_SETTINGS
    prefixes: ClassVar[tuple[str, ...]] = PREFIXES
    version: ClassVar[str] = "1"

    def __init__(self, config: Mapping[str, Any], context: ConnectorContext) -> None:
        super().__init__(config, context)
        self._aliases = config["source.cluster.alias"], config["target.cluster.alias"]
        self._due = Timer(config, "emit.heartbeats")

    def start(self) -> None:
        client = clusters.make_client(self.config, self.context, "target", "admin")
        try:
            replicas = self.config["heartbeats.topic.replication.factor"]
            create_store_topic(client, TopicForm(HEARTBEATS, 1, replicas, {}))
        finally:
            client.close()

    def plan(self, offsets: Mapping[str, SourceOffset]) -> Sequence[Part]:
        now_s = time.monotonic()
        if not self.config["enabled"] or not self._due.is_due(now_s):
            return ()
        self._due.note_done(now_s)
        source, target = self._aliases
        return [Part({"sourceClusterAlias": source, "targetClusterAlias": target})]

    def read(self, part: Part, offset: SourceOffset | None) -> Iterator[SourceBatch]:
        timestamp = now_ms()
        record = encode_heartbeat(*self._aliases, timestamp)
        yield SourceBatch((), {"offset": 0}, [to_raw(HEARTBEATS, [record], timestamp)])

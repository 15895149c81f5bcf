"""Puts workers together: standalone ones and members of a group."""

import logging
import time
from collections.abc import Callable, Mapping

from ottla.client.backoff import now_ms
from ottla.client.client import Client
from ottla.connect.connector import ConnectorContext
from ottla.connect.errors import ConnectError
from ottla.connect.worker.assignment import TakeoverDelay
from ottla.connect.worker.configs import ConfigStore, ConfigTopic
from ottla.connect.worker.herder import Plugins
from ottla.connect.worker.herding import TopicTracking, WorkerHerder
from ottla.connect.worker.loggers import Loggers
from ottla.connect.worker.membership import Membership
from ottla.connect.worker.offset_changes import OffsetChanges
from ottla.connect.worker.properties import WorkerProperties
from ottla.connect.worker.runs import ConnectorSpec, RunFactory
from ottla.connect.worker.standalone import LonelyGroup, MemoryConfigs, MemoryStatuses
from ottla.connect.worker.statuses import StatusStore, StatusTopic
from ottla.connect.worker.supervision import Supervisor
from ottla.connect.worker.topics import create_store_topic
from ottla.connect.worker.worker import Group, Worker

log = logging.getLogger(__name__)

API_TIMEOUT_MS = 10_000
"""How long one operation of the worker on its topics may take before it is reported and tried again."""
MARGIN_MS = 5_000


def make_standalone_herder(
    raw: Mapping[str, str], worker_id: str, plugins: Plugins, make_run: RunFactory
) -> WorkerHerder:
    """`worker_id` is host:port of the REST server. BadConfig if a property is not valid; KafkaError or Unreachable if
    the Kafka cluster does not let the worker create its topics."""
    properties = _read_properties(raw, is_distributed=False)
    client = _make_client(properties)
    create_store_topic(client, properties.offsets)
    client.close()
    configs = MemoryConfigs()
    return _make_herder(
        properties,
        worker_id,
        plugins,
        make_run,
        configs,
        MemoryStatuses(),
        lambda _: LonelyGroup(configs.state, time.monotonic),
    )


def make_distributed_herder(
    raw: Mapping[str, str], worker_id: str, plugins: Plugins, make_run: RunFactory
) -> WorkerHerder:
    """Like `make_standalone_herder`, for a member of the group group.id."""
    properties = _read_properties(raw, is_distributed=True)
    client = _make_client(properties)
    for form in (properties.configs, properties.offsets, properties.statuses):
        create_store_topic(client, form)
    config_topic = properties.configs.name
    if client.count_partitions([config_topic])[config_topic] != 1:
        raise ConnectError(f"topic {config_topic!r} (config.storage.topic) has to have one partition")
    client.close()
    settings = properties.membership
    waiting_ms = settings.rebalance_timeout_ms + MARGIN_MS

    def make_group(worker: Worker) -> Group:
        return Membership(
            Client({**properties.client, "request.timeout.ms": str(waiting_ms)}),
            settings,
            worker_id,
            get_owned=lambda: worker.supervisor.owned,
            assign=worker.decide_assignment,
            wake=worker.wake,
            seconds=time.monotonic,
        )

    return _make_herder(
        properties,
        worker_id,
        plugins,
        make_run,
        ConfigTopic(_make_client(properties), config_topic, f"connect-cluster-{properties.group}"),
        StatusTopic(_make_client(properties), properties.statuses.name),
        make_group,
    )


def _read_properties(raw: Mapping[str, str], *, is_distributed: bool) -> WorkerProperties:
    properties = WorkerProperties.of(raw, is_distributed=is_distributed)
    for line in properties.list_warnings():
        log.warning("%s", line)
    return properties


def _make_client(properties: WorkerProperties) -> Client:
    return Client({"default.api.timeout.ms": str(API_TIMEOUT_MS), **properties.client})


def _make_herder(
    properties: WorkerProperties,
    worker_id: str,
    plugins: Plugins,
    make_run: RunFactory,
    configs: ConfigStore,
    statuses: StatusStore,
    make_group: Callable[[Worker], Group],
) -> WorkerHerder:
    def make_spec(name: str, config: Mapping[str, str]) -> ConnectorSpec:
        tasks_max = config.get("tasks.max", "1")
        context = ConnectorContext(
            name, properties.group, int(tasks_max) if tasks_max.isdecimal() else 1, properties.client
        )
        return ConnectorSpec(name, config, properties.raw, context)

    def make_supervisor(worker: Worker) -> Supervisor:
        return Supervisor(
            make_run,
            make_spec,
            worker.publish,
            wake=worker.wake,
            seconds=time.monotonic,
            stop_timeout_s=properties.stop_timeout_s,
        )

    worker = Worker(
        worker_id,
        configs,
        statuses,
        Loggers(now_ms),
        make_supervisor=make_supervisor,
        make_group=make_group,
        delay=TakeoverDelay(properties.takeover_delay_s, time.monotonic),
        find_version=plugins.find_version,
        tracks_topics=properties.tracks_topics,
    )
    offsets = OffsetChanges(
        lambda: _make_client(properties),
        lambda name, config: plugins.make_connector(make_spec(name, config)),
        properties.offsets.name,
        properties.group,
    )
    tracking = TopicTracking(properties.tracks_topics, properties.may_reset_topics)
    return WorkerHerder(worker, plugins, offsets, tracking, lambda: _make_client(properties))

"""Views as an `ottla` command, a Python program and a PySpark program that show the same.

Settings of the connection are carried over; secrets are left out, with a place for them.
"""

import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.console.console import Options

_SECRETS = ("password", "secret", "token", "key.pem", "jaas", "user.info")
_NOT_CARRIED = ("bootstrap.servers", "client.id", "default.api.timeout.ms", "request.timeout.ms")


class Copyable(NamedTuple):
    name: str
    text: str


Copies = list[Copyable]


def copy_cluster(options: Options) -> Copies:
    return _make(
        f"ottla cluster status{_flags(options)}",
        f"""{_admin(options)}
cluster = admin.describe_cluster().result()
print(cluster.cluster_id, "controller:", cluster.controller.id)
for node in cluster.nodes:
    print(node.id, f"{{node.host}}:{{node.port}}", node.rack)
""",
        _rows_in_spark(
            f"{_admin(options)}\n"
            "rows = [(node.id, node.host, node.port) for node in admin.describe_cluster().result().nodes]",
            "id int, host string, port int",
        ),
    )


def copy_broker(options: Options, broker: int) -> Copies:
    return _make(
        f"ottla config get broker {broker}{_flags(options)}",
        _settings_program(options, "BROKER", str(broker)),
        _rows_in_spark(
            _settings_program(options, "BROKER", str(broker), printing=False), "name string, value string, source int"
        ),
    )


def copy_topics(options: Options, internal: bool) -> Copies:
    listing = "rows = [(name, len(topic.partitions)) for name, topic in admin.list_topics().topics.items()]"
    return _make(
        f"ottla topic list{' --internal' * internal}{_flags(options)}",
        f"{_admin(options)}\nfor name, topic in sorted(admin.list_topics().topics.items()):\n"
        "    print(name, len(topic.partitions))\n",
        _rows_in_spark(f"{_admin(options)}\n{listing}", "topic string, partitions int"),
    )


def copy_topic(options: Options, topic: str) -> Copies:
    return _make(
        f"ottla topic describe {shlex.quote(topic)}{_flags(options)}",
        f"""{_admin(options)}
for partition in admin.list_topics({topic!r}).topics[{topic!r}].partitions.values():
    print(partition.id, "leader:", partition.leader, "replicas:", partition.replicas, "in sync:", partition.isrs)
""",
        _spark(options, topic, ['.groupBy("partition").agg({"offset": "max"})'], "earliest") + "\nrecords.show()\n",
    )


def copy_settings(options: Options, topic: str) -> Copies:
    return _make(
        f"ottla config get topic {shlex.quote(topic)}{_flags(options)}",
        _settings_program(options, "TOPIC", topic),
        _rows_in_spark(
            _settings_program(options, "TOPIC", topic, printing=False), "name string, value string, source int"
        ),
    )


def copy_groups(options: Options) -> Copies:
    return _make(
        f"ottla group list{_flags(options)}",
        f"{_admin(options)}\nfor group in admin.list_consumer_groups().result().valid:\n"
        "    print(group.group_id, group.type, group.state)\n",
        _rows_in_spark(
            f"{_admin(options)}\nrows = [(group.group_id, str(group.state)) "
            "for group in admin.list_consumer_groups().result().valid]",
            "group string, state string",
        ),
    )


def copy_group(options: Options, group: str) -> Copies:
    offsets = f"""from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

admin = AdminClient({_settings(options)})
wanted = [ConsumerGroupTopicPartitions({group!r})]
committed = admin.list_consumer_group_offsets(wanted)[{group!r}].result().topic_partitions
ends = admin.list_offsets({{TopicPartition(at.topic, at.partition): OffsetSpec.latest() for at in committed}})
ends = {{(where.topic, where.partition): end.result().offset for where, end in ends.items()}}
rows = [(at.topic, at.partition, at.offset, ends[at.topic, at.partition] - at.offset) for at in committed]"""
    return _make(
        f"ottla group describe {shlex.quote(group)}{_flags(options)}",
        f"{offsets}\nfor row in sorted(rows):\n    print(*row)\n",
        _rows_in_spark(offsets, "topic string, partition int, committed long, lag long"),
    )


def copy_records(
    options: Options, topic: str, *, partition: int | None, start: str, number: int | None, limit: int
) -> Copies:
    """`start` is newest, oldest, offset or time; `number` the offset or the time in milliseconds."""
    command = ["ottla consume", shlex.quote(topic)]
    if partition is not None:
        command.append(f"--partition {partition}")
    places = {"newest": f"--last {limit}", "offset": f"--offset {number}", "time": f"--since {number}"}
    command += [places[start]] if start in places else []
    command += ["--format json"] if start == "newest" else [f"--count {limit} --format json"]
    return _make(
        " ".join(command) + _flags(options),
        _consumer(options, topic, partition, start, number, limit),
        _spark(options, topic, _spark_filters(partition, start, number, limit), "earliest") + "\nrecords.show()\n",
    )


def copy_transactions(options: Options) -> Copies:
    asking = f"""from ottla.client.client import Client
from ottla.client.transaction_states import list_transactional_ids, transaction_states

client = Client({_settings(options)})
states = transaction_states(client, list_transactional_ids(client, ""))
rows = [(name, state.producer_id, state.state) for name, state in states.items()]"""
    return _make(
        f"ottla txn list{_flags(options)}",
        f"# confluent-kafka cannot list transactions; Ottla's own client can\n{asking}\n"
        "for row in rows:\n    print(*row)\n",
        _rows_in_spark(asking, "transactional_id string, producer_id long, state string"),
    )


def copy_access(options: Options) -> Copies:
    return _make(
        f"ottla acl list{_flags(options)}",
        f"""from confluent_kafka.admin import AclBindingFilter, AclOperation, AclPermissionType, AdminClient
from confluent_kafka.admin import ResourcePatternType, ResourceType

admin = AdminClient({_settings(options)})
everything = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)
for binding in admin.describe_acls(everything).result():
    print(binding)
""",
        "",
    )


def copy_apps(options: Options) -> Copies:
    return _make(f"ottla stream list{_flags(options)}\nottla sink list{_flags(options)}", "", "")


def copy_app(options: Options, name: str) -> Copies:
    return _make(f"ottla stream describe {shlex.quote(name)}{_flags(options)}", "", "")


def copy_connectors(url: str, name: str = "") -> Copies:
    address = url.rstrip("/")
    action = f"status {shlex.quote(name)}" if name else "list"
    path = f"/connectors/{name}/status" if name else "/connectors?expand=status"
    return _make(
        f"ottla connect {action} --url {shlex.quote(address)}",
        f"import json\nfrom urllib.request import urlopen\n\nprint(json.load(urlopen({address + path!r})))\n",
        "",
    )


# The parts


def _make(command: str, python: str, pyspark: str) -> Copies:
    found = [Copyable("ottla", command), Copyable("Python", python), Copyable("PySpark", pyspark)]
    return [each for each in found if each.text]


def _is_secret(name: str) -> bool:
    return any(part in name.lower() for part in _SECRETS)


def _carried(options: Options) -> dict[str, str]:
    return {
        name: "..." if _is_secret(name) else value
        for name, value in options.settings.items()
        if name not in _NOT_CARRIED
    }


def _flags(options: Options) -> str:
    extra = "".join(f" -X {shlex.quote(f'{name}={value}')}" for name, value in _carried(options).items())
    return f" -b {shlex.quote(options.settings['bootstrap.servers'])}{extra}"


def _settings(options: Options, **more: str) -> str:
    found = {"bootstrap.servers": options.settings["bootstrap.servers"], **_carried(options)}
    found |= {name.replace("_", "."): value for name, value in more.items()}
    return _write_dict(found)


def _write_dict(pairs: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{name!r}: {value!r}" for name, value in pairs.items()) + "}"


def _admin(options: Options) -> str:
    return f"from confluent_kafka.admin import AdminClient\n\nadmin = AdminClient({_settings(options)})"


def _settings_program(options: Options, kind: str, name: str, *, printing: bool = True) -> str:
    text = f"""from confluent_kafka.admin import AdminClient, ConfigResource

admin = AdminClient({_settings(options)})
resource = ConfigResource(ConfigResource.Type.{kind}, {name!r})
settings = admin.describe_configs([resource])[resource].result()
"""
    if printing:
        return text + 'for name, setting in sorted(settings.items()):\n    print(f"{name}={setting.value}")\n'
    return text + "rows = [(name, setting.value, setting.source) for name, setting in sorted(settings.items())]"


def _consumer(options: Options, topic: str, partition: int | None, start: str, number: int | None, limit: int) -> str:
    numbers = (
        f"[{partition}]" if partition is not None else f"consumer.list_topics({topic!r}).topics[{topic!r}].partitions"
    )
    where = {
        "newest": f"max(low, high - {limit})",
        "oldest": "low",
        "offset": str(number),
        "time": f"consumer.offsets_for_times([TopicPartition({topic!r}, number, {number})])[0].offset",
    }[start]
    return f"""from confluent_kafka import Consumer, TopicPartition

consumer = Consumer({_settings(options, group_id="console-copy", enable_auto_commit="false")})
places = []
for number in {numbers}:
    low, high = consumer.get_watermark_offsets(TopicPartition({topic!r}, number))
    places.append(TopicPartition({topic!r}, number, {where}))
consumer.assign(places)
for message in consumer.consume({limit}, timeout=5):
    print(message.partition(), message.offset(), message.key(), message.value())
consumer.close()
"""


def _spark_filters(partition: int | None, start: str, number: int | None, limit: int) -> Sequence[str]:
    filters = [f'.where("partition = {partition}")'] if partition is not None else []
    if start == "offset":
        filters.append(f'.where("offset >= {number}")')
    if start == "time":
        filters.append(f'.where("timestamp >= timestamp_millis({number})")')
    order = "desc" if start == "newest" else "asc"
    return [
        *filters,
        f'.orderBy("timestamp {order}")'.replace(' desc")', '", ascending=False)').replace(' asc")', '")'),
        f".limit({limit})",
    ]


def _spark(options: Options, topic: str, more: Sequence[str], start: str) -> str:
    settings = {"kafka.bootstrap.servers": options.settings["bootstrap.servers"]}
    settings |= {f"kafka.{name}": value for name, value in _carried(options).items()}
    lines = [f"    .option({name!r}, {value!r})" for name, value in settings.items()]
    chain = "\n".join(
        [
            '    spark.read.format("ottla")',
            *lines,
            f'    .option("subscribe", {topic!r})',
            f'    .option("startingOffsets", {start!r})',
            "    .load()",
            *(f"    {each}" for each in more),
        ]
    )
    return f"import ottla.spark\n\nspark = ottla.spark.session()\nrecords = (\n{chain}\n)"


def _rows_in_spark(program: str, schema: str) -> str:
    return (
        f"import ottla.spark\n{program}\n\nspark = ottla.spark.session()\n"
        f"spark.createDataFrame(rows, {schema!r}).show(truncate=False)\n"
    )

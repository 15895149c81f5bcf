"""Views as an `ottla` command, a Python program and a PySpark program that show the same. Each can be run as it is."""

import shlex
from urllib.parse import quote

from ottla.console.console import Options
from ottla.console.facts.apps import TOKEN_VARIABLE as APP_TOKEN
from ottla.console.facts.connectors import split_login
from ottla.console.facts.searching import Search
from ottla.console.snippets import (
    CONNECT_LOGIN,
    Copies,
    make_copies,
    write_admin,
    write_asking,
    write_consumer,
    write_flags,
    write_grep,
    write_printing,
    write_reading,
    write_rows_in_spark,
    write_settings,
    write_settings_program,
    write_spark_filter,
)

NO_SEARCH = Search("")


def _copy_rows(command: str, program: str, schema: str) -> Copies:
    """A view whose Python makes `rows`."""
    return make_copies(command, write_printing(program), write_rows_in_spark(program, schema))


def copy_cluster(options: Options) -> Copies:
    program = f"""{write_admin(options)}
cluster = admin.describe_cluster().result()
rows = [(node.id, node.host, node.port, node.id == cluster.controller.id) for node in cluster.nodes]"""
    return _copy_rows(
        f"ottla cluster status{write_flags(options)}\nottla cluster brokers{write_flags(options)}",
        program,
        "id int, host string, port int, is_controller boolean",
    )


def copy_broker(options: Options, broker: int) -> Copies:
    program = write_settings_program(options, "BROKER", str(broker))
    return _copy_rows(f"ottla config get broker {broker}{write_flags(options)}", program, "name string, value string")


def copy_topics(options: Options, internal: bool) -> Copies:
    program = f"""{write_admin(options)}
topics = admin.list_topics().topics
rows = [(name, len(topic.partitions)) for name, topic in sorted(topics.items())]"""
    return _copy_rows(
        f"ottla topic list{' --internal' * internal}{write_flags(options)}", program, "topic string, partitions int"
    )


def copy_topic(options: Options, topic: str) -> Copies:
    return make_copies(
        f"ottla topic describe {shlex.quote(topic)}{write_flags(options)}",
        f"""{write_admin(options)}
for partition in admin.list_topics({topic!r}).topics[{topic!r}].partitions.values():
    print(partition.id, "leader:", partition.leader, "replicas:", partition.replicas, "in sync:", partition.isrs)
""",
        write_reading(options, topic, ['.groupBy("partition")', '.agg({"offset": "max"})']),
    )


def copy_settings(options: Options, topic: str) -> Copies:
    program = write_settings_program(options, "TOPIC", topic)
    command = f"ottla config get topic {shlex.quote(topic)}{write_flags(options)}"
    return _copy_rows(command, program, "name string, value string")


def copy_groups(options: Options) -> Copies:
    program = f"""{write_admin(options)}
groups = admin.list_consumer_groups().result().valid
rows = [(group.group_id, group.state.name) for group in groups]"""
    return _copy_rows(f"ottla group list{write_flags(options)}", program, "group string, state string")


def copy_group(options: Options, group: str) -> Copies:
    program = f"""from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

admin = AdminClient({write_settings(options)})
wanted = [ConsumerGroupTopicPartitions({group!r})]
committed = admin.list_consumer_group_offsets(wanted)[{group!r}].result().topic_partitions
ends = admin.list_offsets({{TopicPartition(at.topic, at.partition): OffsetSpec.latest() for at in committed}})
ends = {{(where.topic, where.partition): end.result().offset for where, end in ends.items()}}
rows = [(at.topic, at.partition, at.offset, ends[at.topic, at.partition] - at.offset) for at in committed]"""
    return _copy_rows(
        f"ottla group describe {shlex.quote(group)}{write_flags(options)}",
        program,
        "topic string, partition int, committed long, lag long",
    )


def copy_topic_groups(options: Options, topic: str, groups: list[str]) -> Copies:
    """The groups that read a topic, with their lag there."""
    named = " ".join(shlex.quote(name) for name in groups)
    program = f"""from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

admin = AdminClient({write_settings(options)})
rows = []
for group in {groups!r}:
    committed = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result()
    for at in committed.topic_partitions:
        if at.topic == {topic!r}:
            where = TopicPartition(at.topic, at.partition)
            end = admin.list_offsets({{where: OffsetSpec.latest()}})[where].result().offset
            rows.append((group, at.partition, at.offset, end - at.offset))"""
    command = f"ottla group describe {named}" if groups else "ottla group list"
    return _copy_rows(command + write_flags(options), program, "group string, partition int, committed long, lag long")


def copy_records(
    options: Options,
    topic: str,
    *,
    partition: int | None,
    start: str,
    number: int | None,
    limit: int,
    search: Search = NO_SEARCH,
) -> Copies:
    """`start` is newest, oldest, offset or time; `number` the offset or the time in milliseconds."""
    newest, has_search = start == "newest", bool(search.text)
    command = f"ottla consume {shlex.quote(topic)} --format json"
    command += "" if partition is None else f" --partition {partition}"
    command += {"offset": f" --offset {number}", "time": f" --since {number}"}.get(start, "")
    if not has_search:
        command += f" --last {limit}" if newest else f" --count {limit}"
    command += write_flags(options) + write_grep(search)
    if has_search:
        command += f" | {'tail' if newest else 'head'} -n {limit}"
    where = {
        "newest": "low" if has_search else f"max(low, high - {limit})",
        "oldest": "low",
        "offset": str(number),
        "time": f"consumer.offsets_for_times([TopicPartition({topic!r}, number, {number})])[0].offset",
    }[start]
    filters = [] if partition is None else [f'.where("partition = {partition}")']
    if start in ("offset", "time"):
        filters.append(f'.where("{"offset" if start == "offset" else "unix_millis(timestamp)"} >= {number}")')
    order = f'.orderBy("timestamp"{", ascending=False" if newest else ""})'
    return make_copies(
        command,
        write_consumer(options, topic, partition, where, limit, search),
        write_reading(options, topic, [*filters, *write_spark_filter(search), order, f".limit({limit})"]),
    )


def copy_produce(options: Options, topic: str) -> Copies:
    """One record with a key."""
    settings = write_settings(options)
    return make_copies(
        f"echo '{{\"id\": 1}}' | ottla produce {shlex.quote(topic)} --key k1{write_flags(options)}",
        f"""from confluent_kafka import Producer

producer = Producer({settings})
producer.produce({topic!r}, '{{"id": 1}}', "k1")
producer.flush()
""",
        f"""import ottla.spark

spark = ottla.spark.session()
rows = spark.createDataFrame([("k1", '{{"id": 1}}')], "key string, value string")
settings = {settings}
options = {{f"kafka.{{name}}": value for name, value in settings.items()}}
rows.write.format("ottla").mode("append").options(**options).option("topic", {topic!r}).save()
""",
    )


def copy_transactions(options: Options) -> Copies:
    # confluent-kafka cannot list transactions; Ottla's own client can
    program = f"""from ottla.client.client import Client
from ottla.client.transaction_states import find_transaction_states, list_transactional_ids

client = Client({write_settings(options)})
states = find_transaction_states(client, list_transactional_ids(client, ""))
rows = [(name, state.producer_id, state.state) for name, state in states.items()]
client.close()"""
    return _copy_rows(
        f"ottla txn list{write_flags(options)}", program, "transactional_id string, producer_id long, state string"
    )


def copy_access(options: Options) -> Copies:
    flags = write_flags(options)
    program = f"""from confluent_kafka.admin import AclBindingFilter, AclOperation, AclPermissionType, AdminClient
from confluent_kafka.admin import ResourcePatternType, ResourceType

admin = AdminClient({write_settings(options)})
everything = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)
rows = [
    (acl.principal, acl.permission_type.name, acl.operation.name, acl.restype.name, acl.name, acl.host)
    for acl in admin.describe_acls(everything).result()
]"""
    return _copy_rows(
        f"ottla acl list{flags}\nottla user list{flags}\nottla quota list{flags}",
        program,
        "principal string, permission string, operation string, resource string, name string, host string",
    )


def copy_apps(options: Options) -> Copies:
    flags = write_flags(options)
    program = f"""from ottla.client.client import Client
from ottla.client.exactly_once.sinks import find_sinks
from ottla.streams.running.registration import read_registrations

client = Client({write_settings(options)})
rows = [(name, "app", app.state) for name, app in read_registrations(client).items()]
rows += [(sink.query_id, "Spark query", f"batch {{sink.last_batch}}") for sink in find_sinks(client)]
client.close()"""
    return _copy_rows(
        f"ottla stream list{flags}\nottla sink list{flags}", program, "name string, kind string, state string"
    )


def copy_registration(options: Options, name: str) -> Copies:
    """An app that does not run."""
    program = f"""from ottla.client.client import Client
from ottla.streams.running.registration import read_registrations

client = Client({write_settings(options)})
app = read_registrations(client)[{name!r}]
rows = [(app.app, app.state, app.host, app.message)]
client.close()"""
    return _copy_rows(
        f"ottla stream describe {shlex.quote(name)}{write_flags(options)}",
        program,
        "app string, state string, host string, message string",
    )


def copy_app(options: Options, name: str, address: str, *, has_token: bool = False) -> Copies:
    program = f"""{write_asking(f"{address}/progress", APP_TOKEN if has_token else "")}
rows = [
    (each["subtopology"], each["state"], sum(each["lag"].values()), each["rows_read"], each["rows_written"])
    for each in found["subtopologies"]
]"""
    return _copy_rows(
        f"ottla stream describe {shlex.quote(name)}{write_flags(options)}",
        program,
        "subtopology string, state string, lag long, rows_read long, rows_written long",
    )


def copy_store(
    options: Options, name: str, address: str, store: str, key: list[str], limit: int, *, has_token: bool = False
) -> Copies:
    """All rows up to a limit, or those of a key."""
    words = " ".join(shlex.quote(word) for word in (name, store, *key))
    path = "/".join(("stores", *(quote(part, safe="") for part in (store, *key))))
    query = "" if key else f"?limit={limit}"
    program = f"""{write_asking(f"{address}/{path}{query}", APP_TOKEN if has_token else "")}
rows = [(json.dumps(row),) for row in found.get("rows", [found])]"""
    command = f"ottla stream query {words}{'' if key else f' --limit {limit}'}{write_flags(options)}"
    return _copy_rows(command, program, "row string")


def copy_connectors(url: str, name: str = "") -> Copies:
    address, login = split_login(url)
    command = f"status {shlex.quote(name)}" if name else "list"
    path = f"/connectors/{quote(name, safe='')}/status" if name else "/connectors?expand=status"
    statuses = "[found]" if name else "[found[name]['status'] for name in sorted(found)]"
    program = f"""{write_asking(address + path, CONNECT_LOGIN if login else "")}
rows = [
    (each["name"], each["connector"]["state"], ", ".join(task["state"] for task in each["tasks"]))
    for each in {statuses}
]"""
    scheme, _, rest = address.partition("://")
    place = f'"{scheme}://${CONNECT_LOGIN}@{rest}"' if login else shlex.quote(address)
    return _copy_rows(f"ottla connect {command} --url {place}", program, "connector string, state string, tasks string")

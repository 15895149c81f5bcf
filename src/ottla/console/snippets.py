"""Pieces of the commands and programs of `copying.py`.

The settings of security are carried over, with librdkafka's names, which every client of ours knows too. Secrets are
left out: the `ottla` command finds them in variables such as OTTLA_CLIENT_SASL_PASSWORD, and so do the programs.
"""

import shlex
from collections.abc import Sequence
from typing import NamedTuple

from ottla.client.security import is_secret, make_librdkafka_settings, translate_settings
from ottla.console.console import Options
from ottla.console.facts.searching import KEY, VALUE, Search

CONNECT_LOGIN = "OTTLA_CONNECT_LOGIN"
"""The variable in which copies find the user and the password of a worker of Kafka Connect, as in a URL."""
_CARRIED = ("security.", "ssl.", "sasl.", "enable.ssl.")


class Copyable(NamedTuple):
    name: str
    text: str


Copies = list[Copyable]


def make_copies(command: str, python: str, pyspark: str) -> Copies:
    texts = (("ottla", command), ("Python", with_imports(python)), ("PySpark", with_imports(pyspark)))
    return [Copyable(name, text) for name, text in texts if text]


def with_imports(program: str) -> str:
    return f"import os\n{program}" if "os.environ[" in program else program


def find_carried(options: Options) -> dict[str, str]:
    """The settings of security, with the names of librdkafka."""
    settings = {name: value for name, value in options.settings.items() if name.startswith(_CARRIED)}
    try:
        found = make_librdkafka_settings(settings)
    except ValueError:  # a delegation token, which librdkafka does not know
        return settings
    if "oauth_cb" in found:
        return translate_settings(settings)
    return {name: value for name, value in found.items() if isinstance(value, str)}


def write_flags(options: Options) -> str:
    """The flags of an `ottla` command."""
    carried = {name: value for name, value in find_carried(options).items() if not is_secret(name)}
    extra = "".join(f" -X {shlex.quote(f'{name}={value}')}" for name, value in carried.items())
    return f" -b {shlex.quote(options.settings['bootstrap.servers'])}{extra}"


def write_values(options: Options) -> dict[str, str]:
    """Settings of a client, each with its value as an expression of Python."""
    address = options.settings["bootstrap.servers"]
    return {"bootstrap.servers": repr(address)} | {
        name: f"os.environ[{variable_of(name)!r}]" if is_secret(name) else repr(value)
        for name, value in find_carried(options).items()
    }


def variable_of(name: str) -> str:
    """The variable in which the `ottla` command finds a setting."""
    return "OTTLA_CLIENT_" + name.upper().replace(".", "_")


def write_settings(options: Options, **more: str) -> str:
    values = write_values(options) | {name.replace("_", "."): repr(value) for name, value in more.items()}
    pairs = [f"{name!r}: {value}" for name, value in values.items()]
    if len(pairs) == 1:
        return f"{{{pairs[0]}}}"
    return "{\n" + "".join(f"    {pair},\n" for pair in pairs) + "}"


def write_admin(options: Options) -> str:
    return f"from confluent_kafka.admin import AdminClient\n\nadmin = AdminClient({write_settings(options)})"


def write_rows_in_spark(program: str, schema: str) -> str:
    """A program that makes `rows`, as a DataFrame."""
    return (
        f"import ottla.spark\n{program}\n\nspark = ottla.spark.session()\n"
        f"spark.createDataFrame(rows, {schema!r}).show(truncate=False)\n"
    )


def write_printing(program: str) -> str:
    return f"{program}\nfor row in rows:\n    print(*row)\n"


def write_reading(options: Options, topic: str, steps: Sequence[str], **extra: str) -> str:
    """A DataFrame of a topic's records."""
    lines = [f"    .option({f'kafka.{name}'!r}, {value})" for name, value in write_values(options).items()]
    lines += [f"    .option({name!r}, {value!r})" for name, value in extra.items()]
    chain = "\n".join(
        [
            '    spark.read.format("ottla")',
            *lines,
            f'    .option("subscribe", {topic!r})',
            "    .load()",
            *(f"    {step}" for step in steps),
        ]
    )
    return f"import ottla.spark\n\nspark = ottla.spark.session()\nrecords = (\n{chain}\n)\nrecords.show()\n"


def write_asking(url: str, variable: str = "") -> str:
    """Gets the JSON of a page as `found`. `variable` names where its token or its user:password is."""
    if not variable:
        return f"import json\nfrom urllib.request import urlopen\n\nfound = json.load(urlopen({url!r}))"
    is_login = variable == CONNECT_LOGIN
    word = f"os.environ[{variable!r}]"
    if is_login:  # as in a URL
        word = f"b64encode(unquote({word}).encode()).decode()"
    imports = "import json\n" + "from base64 import b64encode\nfrom urllib.parse import unquote\n" * is_login
    return (
        f"{imports}from urllib.request import Request, urlopen\n\n"
        f'headers = {{"Authorization": "{"Basic" if is_login else "Bearer"} " + {word}}}\n'
        f"found = json.load(urlopen(Request({url!r}, headers=headers)))"
    )


def write_settings_program(options: Options, kind: str, name: str) -> str:
    return f"""from confluent_kafka.admin import AdminClient, ConfigResource

admin = AdminClient({write_settings(options)})
resource = ConfigResource(ConfigResource.Type.{kind}, {name!r})
settings = admin.describe_configs([resource])[resource].result()
rows = [(name, setting.value) for name, setting in sorted(settings.items())]"""


def write_consumer(
    options: Options,
    topic: str,
    partition: int | None,
    where: str,
    limit: int,
    search: Search,
) -> str:
    """`where` is an expression for the first offset, in which `low`, `high` and `number` have values."""
    numbers = (
        f"[{partition}]" if partition is not None else f"consumer.list_topics({topic!r}).topics[{topic!r}].partitions"
    )
    settings = write_settings(options, group_id="console-copy", enable_auto_commit="false", enable_partition_eof="true")
    return f"""{"import re" + chr(10) if search.text else ""}from confluent_kafka import Consumer, TopicPartition

consumer = Consumer({settings})
places = []
for number in {numbers}:
    low, high = consumer.get_watermark_offsets(TopicPartition({topic!r}, number))
    places.append(TopicPartition({topic!r}, number, {where}))
consumer.assign(places)
left, ended = {limit}, set()
while left and len(ended) < len(places):
    message = consumer.poll()
    if message.error():  # the end of a partition
        ended.add(message.partition())
        continue
{_write_condition(search)}    print(message.partition(), message.offset(), message.key(), message.value())
    left -= 1
consumer.close()
"""


def _write_condition(search: Search) -> str:
    if not search.text:
        return ""
    parts = {KEY: "message.key()", VALUE: "message.value()"}
    text = parts.get(search.place, "(message.key(), message.value(), message.headers())")
    return f"    if not re.search({write_pattern(search)!r}, str({text})):\n        continue\n"


def write_pattern(search: Search) -> str:
    """The search as a regular expression."""
    return search.text if search.is_pattern else f"(?i){_escape(search.text)}"


def _escape(text: str) -> str:
    return "".join(f"\\{each}" if each in r"\.^$*+?()[]{}|" else each for each in text)


def write_grep(search: Search) -> str:
    """The part of a command that leaves out what does not match."""
    flags = "-E" if search.is_pattern else "-i -F"
    return f" | grep {flags} -e {shlex.quote(search.text)}" if search.text else ""


def write_spark_filter(search: Search) -> list[str]:
    if not search.text:
        return []
    column = {KEY: "cast(key as string)", VALUE: "cast(value as string)"}.get(
        search.place, "concat_ws(' ', cast(key as string), cast(value as string))"
    )
    condition = f"{column} rlike {_quote_for_sql(write_pattern(search))}"
    return [f".where({condition!r})"]


def _quote_for_sql(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"

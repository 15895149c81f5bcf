"""DatagenSource: records that a schema describes.

A record is a function of the seed, the task and its position, and the offset is the position: after a restart the
records go on as if nothing had happened, each once.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, ClassVar, Final

from ottla.connect.connector import (
    ConnectorContext,
    Part,
    Source,
    SourceBatch,
    SourceOffset,
    SourcePartition,
    partition_key,
)
from ottla.connect.connectors.datagen.generating import Generator
from ottla.connect.connectors.datagen.quickstarts import QUICKSTARTS
from ottla.connect.data.record import Record
from ottla.connect.errors import ConnectError
from ottla.connect.settings.checks import non_empty
from ottla.connect.settings.definition import REQUIRED, Importance, Kind, Setting, Settings

TASK: Final = "task"
POSITION: Final = "position"
BATCH_ROWS: Final = 10_000
"""Records of a task in one round."""


def make_generator(config: Mapping[str, Any]) -> tuple[Generator, str]:
    """With the name of the key's field, if there is one. ValueError if there is no schema that can be used."""
    if config["quickstart"]:
        schema, key = QUICKSTARTS[config["quickstart"].lower()]
        return Generator(json.dumps(schema)), config["schema.keyfield"] or key
    return Generator(config["schema.string"]), config["schema.keyfield"]


def _refuse(config: Mapping[str, Any]) -> Mapping[str, Sequence[str]]:
    name = "quickstart" if config["quickstart"] else "schema.string"
    if config.get("schema.filename"):
        return {"schema.filename": ["it is not supported; put the schema into schema.string"]}
    if bool(config["quickstart"]) == bool(config["schema.string"]):
        return {"schema.string": ["give either quickstart or schema.string"]}
    if config["quickstart"] and config["quickstart"].lower() not in QUICKSTARTS:
        return {name: [f"{config[name]} is none of {', '.join(QUICKSTARTS)}; schema.string takes any schema"]}
    try:
        generator, key = make_generator(config)
    except (ValueError, TypeError, KeyError, AttributeError, ConnectError) as error:
        return {name: [f"the schema cannot be used: {error}"]}
    try:
        if key:
            generator.find_key(key)
    except ValueError as error:
        return {"schema.keyfield": [str(error)]}
    return {}


class DatagenSource(Source):
    settings: ClassVar[Settings] = Settings(
        (
            Setting("kafka.topic", Kind.STRING, REQUIRED, "The topic to write to.", Importance.HIGH, non_empty),
            Setting("quickstart", Kind.STRING, "", f"A schema by its name: {', '.join(QUICKSTARTS)}.", Importance.HIGH),
            Setting(
                "schema.string",
                Kind.STRING,
                "",
                "An Avro schema in JSON, whose arg.properties say what values look like.",
                Importance.HIGH,
            ),
            Setting("schema.keyfield", Kind.STRING, "", "The field that is the key.", Importance.HIGH),
            Setting(
                "max.interval",
                Kind.LONG,
                500,
                "The longest pause between two records of a task in milliseconds; on average it is half of it."
                " 0 for none.",
                Importance.HIGH,
            ),
            Setting("iterations", Kind.INT, -1, "How many records a task makes; -1 for no end.", Importance.HIGH),
            Setting(
                "random.seed",
                Kind.LONG,
                None,
                "The same seed gives the same records. By default it is made of the connector's name.",
            ),
        ),
        _refuse,
    )
    version: ClassVar[str] = "1"

    def __init__(self, config: Mapping[str, Any], context: ConnectorContext) -> None:
        super().__init__(config, context)
        self._generator, self._key = make_generator(config)
        seed = config["random.seed"]
        self._seed = f"name {context.name}" if seed is None else str(seed)
        self._is_done = False
        self._made_s: float | None = None
        self._owed = 0.0
        """Records that are due and were not made yet: a part of one."""

    def plan(self, offsets: Mapping[str, SourceOffset]) -> Sequence[Part]:
        left = {}
        for number in range(self.context.tasks_max):
            position = int(offsets.get(partition_key({TASK: number}), {}).get(POSITION, 0))
            end = self.config["iterations"]
            left[number] = BATCH_ROWS if end < 0 else min(max(end - position, 0), BATCH_ROWS)
        self._is_done = not any(left.values())
        due = self._count_due()
        return [Part({TASK: number}, {"count": min(due, rows)}) for number, rows in left.items() if rows and due]

    def _count_due(self) -> int:
        """Records that a task is to make now."""
        interval_s = self.config["max.interval"] / 2000
        if interval_s <= 0:
            return BATCH_ROWS
        now_s = time.monotonic()
        self._owed += 1.0 if self._made_s is None else (now_s - self._made_s) / interval_s
        self._made_s = now_s
        due = int(self._owed)
        self._owed -= due
        return due

    def read(self, part: Part, offset: SourceOffset | None) -> Iterator[SourceBatch]:
        start = 0 if offset is None else int(offset[POSITION])
        end = start + int(part.work["count"])
        key_schema = self._generator.find_key(self._key) if self._key else None
        topic, schema, task = self.config["kafka.topic"], self._generator.schema, part.partition[TASK]
        rows = []
        for position in range(start, end):
            value = self._generator.make(Random(f"{self._seed}/{task}/{position}"), position)
            key = value[self._key] if self._key else None
            rows.append(Record(topic, value, schema, key, key_schema))
        yield SourceBatch([rows], {POSITION: end})

    def is_done(self) -> bool:
        return self._is_done

    def check_offset(self, partition: SourcePartition, offset: SourceOffset | None) -> None:
        if not isinstance(partition.get(TASK), int):
            raise ConnectError(f'a partition of this source is {{"{TASK}": 0}}, not {dict(partition)}')
        position = 0 if offset is None else offset.get(POSITION)
        if not isinstance(position, int) or isinstance(position, bool) or position < 0:
            raise ConnectError(f'an offset of this source is {{"{POSITION}": 0}} or null, not {offset}')

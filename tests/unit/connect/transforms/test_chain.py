"""Transformations run in order, each only for the records that its predicate chooses."""

import pickle

import pytest

from ottla.connect.data.record import Header, Record
from ottla.connect.data.schema import Field, Schema, Type
from ottla.connect.errors import BadConfig
from ottla.connect.transforms.chain import TransformError, make_transforms
from ottla.connect.transforms.kinds import PREDICATES, TRANSFORMATIONS

CONFIG = {
    "name": "c",
    "transforms": "drop, wrap",
    "transforms.drop.type": "org.apache.kafka.connect.transforms.Filter",
    "transforms.drop.predicate": "chosen",
    "transforms.wrap.type": "HoistField$Value",
    "transforms.wrap.field": "v",
    "predicates": "chosen",
    "predicates.chosen.type": "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
    "predicates.chosen.pattern": "old-.*",
}


def test_a_predicate_chooses_records() -> None:
    chain = make_transforms(CONFIG)
    assert chain.apply(Record("old-1", 1)) is None
    changed = chain.apply(Record("new", 1))
    assert changed is not None and changed.value == {"v": 1}
    negated = make_transforms({**CONFIG, "transforms.drop.negate": "true"})
    assert negated.apply(Record("new", 1)) is None and negated.apply(Record("old-1", 1)) is not None


@pytest.mark.parametrize(
    ("settings", "record", "is_dropped"),
    [
        ({"type": "HasHeaderKey", "name": "h"}, Record("t", 1, headers=[Header("h", None)]), True),
        ({"type": "HasHeaderKey", "name": "h"}, Record("t", 1), False),
        ({"type": "RecordIsTombstone"}, Record("t", None), True),
        ({"type": "RecordIsTombstone"}, Record("t", 0), False),
        ({"type": "TopicNameMatches", "pattern": "t"}, Record("tt", 0), False),
    ],
)
def test_predicates(settings: dict[str, str], record: Record, is_dropped: bool) -> None:
    config = {name: text for name, text in CONFIG.items() if not name.startswith("predicates.")}
    chain = make_transforms({**config, **{f"predicates.chosen.{name}": text for name, text in settings.items()}})
    assert (chain.apply(record) is None) is is_dropped


@pytest.mark.parametrize(
    ("changes", "trouble"),
    [
        ({"transforms.wrap.type": "Nope"}, r"transforms\.wrap\.\*: there is no class 'Nope'"),
        ({"transforms.wrap.field": None}, 'Missing required configuration "field"'),
        ({"transforms.wrap.type": None}, 'Missing required configuration "transforms.wrap.type"'),
        ({"transforms": "a,a"}, "Duplicate alias provided"),
        ({"transforms.wrap.predicate": "other"}, "'other' is not one of `predicates`"),
        ({"transforms.wrap.negate": "true"}, "there is no config 'transforms.wrap.predicate'"),
        ({"predicates.chosen.pattern": ""}, "non-empty"),
    ],
)
def test_wrong_settings_are_named(changes: dict[str, str | None], trouble: str) -> None:
    config = {name: text for name, text in {**CONFIG, **changes}.items() if text is not None}
    with pytest.raises(BadConfig, match=trouble):
        make_transforms(config)


def test_an_error_names_its_transformation() -> None:
    chain = make_transforms({"transforms": "a", "transforms.a.type": "Cast$Value", "transforms.a.spec": "int8"})
    with pytest.raises(TransformError, match="out of range") as raised:
        chain.apply(Record("t", "x"))
    copy = pickle.loads(pickle.dumps(raised.value))
    assert copy.class_name == "org.apache.kafka.connect.transforms.Cast$Value" and "out of range" in str(copy)


def test_a_chain_survives_pickling_and_leaves_the_record_alone() -> None:
    chain = make_transforms(
        {"transforms": "a", "transforms.a.type": "InsertField$Value", "transforms.a.topic.field": "x"}
    )
    schema = Schema(Type.STRUCT, fields=(Field("a", Schema(Type.INT32)),))
    record = Record("t", {"a": 1}, schema)
    chain.apply(record)
    changed = pickle.loads(pickle.dumps(chain)).apply(record)
    assert changed.value == {"a": 1, "x": "t"} and record == Record("t", {"a": 1}, schema)


def test_a_changed_schema_is_made_once() -> None:
    chain = make_transforms(
        {"transforms": "a", "transforms.a.type": "InsertField$Value", "transforms.a.topic.field": "x"}
    )
    schemas = [Schema(Type.STRUCT, fields=(Field("a", Schema(Type.INT32)),)) for _ in range(2)]
    changed = [chain.apply(Record("t", {"a": 1}, each)) for each in schemas]
    assert changed[0] is not None and changed[1] is not None
    assert changed[0].value_schema is changed[1].value_schema


def test_all_of_kafkas_are_there() -> None:
    kafkas = [each for each in TRANSFORMATIONS if each.class_name.startswith("org.apache.kafka.")]
    names = {each.short_name.partition("$")[0] for each in kafkas}
    assert len(names) == 16 and len(kafkas) == 26 and len(PREDICATES) == 3
    with_default = {
        each.short_name.partition("$")[0]
        for each in TRANSFORMATIONS
        if any(setting.name == "replace.null.with.default" for setting in each.settings.settings)
    }
    assert len(with_default) == 9

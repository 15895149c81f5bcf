"""Whether a new version of an app can go on with the state of the one before.

The runner keeps `describe_state` of the plan that an app was last started with. Steps without state come and go freely.
State values are JSON objects, so columns of a value may be added, removed, or become wider. What would silently give
wrong results is refused: another key, other windows, another function, another number of partitions, a store whose
input has been read already.

What an app no longer has is still there: changelogs, and committed offsets of topics that it reads no more. So the
description of a start also has what all starts before it have left behind (`add_former`). A store that comes back goes
on where it was left, if its topics were not read without it meanwhile; a new store does not begin at the old position.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from ottla.streams.errors import IncompatibleTopology
from ottla.streams.planning.plan import PARCELS, AppPlan, StorePlan, SubtopologyPlan

VERSION = 1
_FORMER = "former"

Read = tuple[str, str]
"""A consumer group and a topic that it reads."""

_WIDER = {
    "int8": ("int16", "int32", "int64", "float", "double"),
    "int16": ("int32", "int64", "float", "double"),
    "int32": ("int64", "double"),
    "float": ("double",),
}
"""Types that a number in JSON can be read as without loss, by the type it was written with."""


def describe_state(plan: AppPlan, partition_counts: Mapping[str, int]) -> dict[str, Any]:
    """What must fit between two versions of an app, as JSON. `partition_counts` has those of all source topics."""
    counts = {**partition_counts, **{topic.name: topic.partitions for topic in plan.internal_topics}}
    reads = _find_reads(plan)
    return {
        "version": VERSION,
        "app": plan.app,
        "subtopologies": {each.name: _describe_subtopology(each, reads[each.name]) for each in plan.subtopologies},
        "stores": {
            store.spec.name: _describe_store(store, _count(each, counts))
            for each in plan.subtopologies
            for store in each.stores
        },
        "topics": {name: count for name, count in counts.items() if count is not None},
    }


def add_former(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The description `new` with the stores and reads that the app had before and has no more. With each store are the
    reads that its content follows from, and the first one that has gone on without it, if there is one."""
    reads = _list_reads(new)
    former = old.get(_FORMER, {"stores": {}, "reads": []})
    stores = dict(former["stores"])
    for unit in old["subtopologies"].values():
        stores |= {name: {**old["stores"][name], "reads": unit["reads"], "missed": None} for name in unit["stores"]}
    for name, store in stores.items():
        missed = [topic for group, topic in store["reads"] if (group, topic) in reads]
        if missed and store["missed"] is None and not store["is_source"]:
            stores[name] = {**store, "missed": missed[0]}
    left = {
        "stores": {name: store for name, store in stores.items() if name not in new["stores"]},
        "reads": [list(each) for each in sorted((_list_reads(old) | _list_reads(former)) - reads)],
    }
    return {**new, _FORMER: left}


def check(old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """IncompatibleTopology, one line, if the app `new` cannot go on with what `old` has left behind."""
    app = new["app"]
    for reason in _find_reasons(old, new):
        raise IncompatibleTopology(f"{app}: {reason}. ottla stream reset {app} rebuilds the state from the topics")


def _find_reasons(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    if old["version"] != VERSION:
        yield f"its state was written by a version of ottla with form {old['version']}, this one has {VERSION}"
        return
    for name, before in old["topics"].items():
        after = new["topics"].get(name, before)
        if after < before or (after > before and new["stores"]):
            yield f"topic {name!r} had {before} partitions and has {after}"
    former = old.get(_FORMER, {"stores": {}, "reads": []})
    known = {**former["stores"], **old["stores"]}
    for name, store in new["stores"].items():
        if name in known:
            yield from _compare_stores(name, known[name], store)
            if topic := known[name].get("missed"):
                yield f"store {name!r} was left out for a time in which records of {topic!r} were read"
    yield from _find_stores_without_past(old, new)
    for name, unit in new["subtopologies"].items():
        before = old["subtopologies"].get(name, unit)["group"]
        if unit["group"] != before:
            yield f"subtopology {name!r} kept its positions in group {before!r} and would look in {unit['group']!r}"


def _compare_stores(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for what, label in (("kind", "kind"), ("changelog", "changelog"), ("partitions", "number of partitions")):
        if old[what] != new[what]:
            yield f"the {label} of store {name!r} was {old[what]} and is {new[what]}"
    if old["key"] != new["key"]:
        yield f"the key of store {name!r} was {_name_columns(old['key'])} and is {_name_columns(new['key'])}"
    if old.get("content", new["content"]) != new["content"]:
        yield f"store {name!r} has {old['content']}, and would have {new['content']}"
    functions = dict(old.get("functions", ()))
    for column, function in new["functions"]:
        found = functions.get(column, function)
        if found != function:
            yield f"column {column!r} of store {name!r} was computed by {found} and would be by {function}"
    before = dict(old["value"])
    for column, kind in new["value"]:
        found = before.get(column, kind)
        if found != kind and kind not in _WIDER.get(found, ()):
            yield f"column {column!r} of store {name!r} was {found} and is {kind}"


def _find_stores_without_past(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    former = old.get(_FORMER, {"stores": {}, "reads": []})
    known, stores = _list_reads(old) | _list_reads(former), {**former["stores"], **old["stores"]}
    for unit in new["subtopologies"].values():
        fresh = [each for each in unit["stores"] if each not in stores and not new["stores"][each]["is_source"]]
        read = [topic for group, topic in unit["reads"] if (group, topic) in known]
        if fresh and read:
            yield f"store {fresh[0]!r} is new, but records of {read[0]!r} have been read already"


def _list_reads(described: Mapping[str, Any]) -> set[Read]:
    """All reads of a description, or of the former part of one."""
    units = described.get("subtopologies", {"": described}).values()
    return {(group, topic) for unit in units for group, topic in unit["reads"]}


def _find_reads(plan: AppPlan) -> dict[str, set[Read]]:
    """The positions that decide which records a subtopology has got, also through exchanges."""
    found = {
        each.name: {(each.group, source.topic) for source in each.sources if source.holds != PARCELS}
        for each in plan.subtopologies
    }
    senders = [(each.name, sink.topic) for each in plan.subtopologies for sink in each.sinks if sink.holds == PARCELS]
    for _ in plan.subtopologies:  # the longest way has no more steps than there are subtopologies
        for each in plan.subtopologies:
            for sender, topic in senders:
                if any(source.topic == topic for source in each.sources):
                    found[each.name] |= found[sender]
    return found


def _describe_subtopology(plan: SubtopologyPlan, reads: Collection[Read]) -> dict[str, Any]:
    return {
        "group": plan.group,
        "sources": [source.topic for source in plan.sources],
        "reads": [list(each) for each in sorted(reads)],
        "stores": [store.spec.name for store in plan.stores],
    }


def _describe_store(store: StorePlan, partitions: int) -> dict[str, Any]:
    return {
        "kind": store.kind,
        "changelog": store.changelog,
        "is_source": store.spec.is_source,
        "partitions": partitions,
        "key": _describe_columns(store.key_columns),
        "value": _describe_columns(store.value_columns),
        "content": store.content,
        "functions": [list(each) for each in store.functions],
    }


def _describe_columns(columns: pa.Schema) -> list[list[str]]:
    return [[field.name, str(field.type)] for field in columns]


def _name_columns(columns: Sequence[Sequence[str]]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns) or "nothing"


def _count(plan: SubtopologyPlan, counts: Mapping[str, int | None]) -> int:
    return max(counts.get(source.topic) or 0 for source in plan.sources)

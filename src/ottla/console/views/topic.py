"""One topic: partitions, settings and groups; add partitions, purge, clone, delete."""

from typing import NamedTuple

from starlette.responses import Response

from ottla.client.client import EARLIEST, LATEST
from ottla.console import copying
from ottla.console.calls import BadInput, Call, explain, parse_number
from ottla.console.facts import topics as changes
from ottla.console.facts.disks import Copy, read_disks
from ottla.console.facts.groups import ListedGroup, lag_of, read_offsets
from ottla.console.facts.metadata import PartitionState
from ottla.console.facts.offsets import list_offsets
from ottla.console.facts.settings import TOPIC, change_settings, read_settings
from ottla.console.history import to_columns
from ottla.console.rendering import quote_segment, write_number
from ottla.console.sampling import ENDS
from ottla.console.views.topics import PARTITIONS_MAX
from ottla.errors import KafkaError
from ottla.topic_partition import TopicPartition


class PartitionRow(NamedTuple):
    state: PartitionState
    first: int | None
    end: int | None
    copies: list[Copy]

    @property
    def records(self) -> int | None:
        return None if self.first is None or self.end is None else self.end - self.first

    @property
    def bytes(self) -> int | None:
        return max((each.bytes for each in self.copies), default=None)


class ReaderRow(NamedTuple):
    group: ListedGroup
    partitions: int
    lag: int


def show(call: Call) -> Response:
    name = call.path("name")
    console = call.console
    snapshot = console.metadata.get()
    topic = snapshot.topic(name)
    console.history.want(ENDS, name, console.now_ms())
    places = [TopicPartition(name, part.number) for part in topic.partitions]
    with console.clients.borrow() as client:
        first = list_offsets(client, snapshot, places, EARLIEST)
        end = list_offsets(client, snapshot, places, LATEST)
        disks = read_disks(client, snapshot, [name])
    rows = [
        PartitionRow(part, first.get(where), end.get(where), disks.copies.get(where, []))
        for where, part in zip(places, topic.partitions, strict=True)
    ]
    rates = console.history.rates(ENDS, name)
    return call.page(
        "topic.html",
        topic=topic,
        tab="partitions",
        rows=rows,
        records=sum(row.records or 0 for row in rows),
        bytes=sum(row.bytes or 0 for row in rows),
        rate=console.history.rate(ENDS, name),
        chart=to_columns([rates]),
        rates=rates,
        copies=copying.copy_topic(console.options, name),
    )


def show_settings(call: Call) -> Response:
    name = call.path("name")
    topic = call.console.metadata.get().topic(name)
    try:
        with call.console.clients.borrow() as client:
            settings = read_settings(client, TOPIC, name)
        refusal = ""
    except KafkaError as error:
        settings, refusal = [], explain(error)
    return call.page(
        "topic_settings.html",
        topic=topic,
        tab="settings",
        settings=settings,
        refusal=refusal,
        copies=copying.copy_settings(call.console.options, name),
    )


def show_groups(call: Call) -> Response:
    name = call.path("name")
    console = call.console
    snapshot = console.metadata.get()
    topic = snapshot.topic(name)
    groups = console.groups.get()
    readers = [groups[reader] for reader in console.index.get().readers.get(name, []) if reader in groups]
    with console.clients.borrow() as client:
        end = list_offsets(client, snapshot, [TopicPartition(name, part.number) for part in topic.partitions], LATEST)
        offsets = read_offsets(client, readers)
    rows = []
    for group in readers:
        committed = {where: each for where, each in offsets.get(group.name, {}).items() if where.topic == name}
        lag = sum(lag_of(each, end.get(where)) or 0 for where, each in committed.items())
        rows.append(ReaderRow(group, len(committed), lag))
    return call.page(
        "topic_groups.html",
        topic=topic,
        tab="groups",
        rows=rows,
        copies=copying.copy_topic_groups(console.options, name, [group.name for group in readers]),
    )


def change(call: Call) -> Response:
    """What the field `action` says."""
    name = call.path("name")
    call.console.metadata.forget()
    call.console.metadata.get().topic(name)
    actions = {
        "set": _set,
        "unset": _unset,
        "partitions": _add_partitions,
        "purge": _purge,
        "clone": _clone,
        "delete": _delete,
    }
    action = actions.get(call.field("action"))
    if action is None:
        raise BadInput(f"there is no action {call.field('action')!r}")
    return action(call, name)


def _set(call: Call, name: str) -> Response:
    setting = call.field("name").strip()
    if not setting:
        raise BadInput("name the setting")
    with call.console.clients.borrow() as client:
        change_settings(client, TOPIC, name, {setting: call.field("value")})
    return call.redirect(f"/topics/{quote_segment(name)}/settings", f"{setting} is set to {call.field('value')}.")


def _unset(call: Call, name: str) -> Response:
    setting = call.field("name").strip()
    with call.console.clients.borrow() as client:
        change_settings(client, TOPIC, name, {setting: None})
    return call.redirect(f"/topics/{quote_segment(name)}/settings", f"{setting} has its default again.")


def _add_partitions(call: Call, name: str) -> Response:
    count = parse_number(call.field("count"), "partitions", 1, PARTITIONS_MAX)
    with call.console.clients.borrow() as client:
        changes.add_partitions(client, name, count)
    return call.redirect(f"/topics/{quote_segment(name)}", f"The topic has {count} partitions.")


def _purge(call: Call, name: str) -> Response:
    _require_name(call, name)
    with call.console.clients.borrow() as client:
        removed = changes.purge(client, call.console.metadata.get(), name)
    return call.redirect(f"/topics/{quote_segment(name)}", f"{write_number(removed)} records are deleted.")


def _clone(call: Call, name: str) -> Response:
    copy = call.field("copy").strip()
    if not copy:
        raise BadInput("name the new topic")
    with call.console.clients.borrow() as client:
        copied = changes.clone(
            client, call.console.metadata.get(), name, copy, with_records=call.field("records") == "1"
        )
    return call.redirect(f"/topics/{quote_segment(copy)}", f"{name} is cloned, with {write_number(copied)} records.")


def _delete(call: Call, name: str) -> Response:
    _require_name(call, name)
    with call.console.clients.borrow() as client:
        changes.delete_topic(client, name)
    return call.redirect("/topics", f"Topic {name} is deleted.")


def _require_name(call: Call, name: str) -> None:
    """What cannot be undone asks for the topic's name once more."""
    if call.field("confirm").strip() != name:
        raise BadInput(f"type the topic's name, {name}, to confirm")

"""Records of a topic: read, search, follow, export, produce, send again, redrive."""

import asyncio
import json
from collections.abc import AsyncIterator
from importlib.util import find_spec
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ottla.client.client import LATEST
from ottla.client.connection import Unreachable
from ottla.console import copying
from ottla.console.calls import BadInput, Call, answer_error, explain, parse_number
from ottla.console.facts.exporting import to_csv, to_json_lines, to_parquet
from ottla.console.facts.offsets import list_offsets
from ottla.console.facts.records import FoundRecord, Matcher, read_range
from ottla.console.facts.sending import CODECS, DeadLetter, find_origin, redrive, send_record
from ottla.console.rendering import quote_segment, write_number
from ottla.console.views.record_rows import (
    EXPORT_MAX,
    INT64_MAX,
    Choice,
    make_rows,
    make_search,
    read_choice,
    read_page,
    write_positions,
)
from ottla.errors import KafkaError
from ottla.topic_partition import TopicPartition

CURSORS_MAX = 500
"""Partitions of a topic whose positions still fit into an address."""
FOLLOW_ROWS_MAX = 100
FOLLOW_S = 0.7
TIMES_MAX = 60 * 60
REDRIVE_MAX = 1_000
AWAY_S = 2.0
"""How long a page that follows waits for a broker that does not answer before it tries again."""
_HEX, _NULL = ":hex", ":null"
"""At the end of a header's name in a form: its value is in hexadecimal, or null."""


def show(call: Call) -> Response:
    choice = read_choice(call)
    topic = call.console.metadata.get().topic(choice.topic)
    with call.console.clients.borrow() as client:
        page = read_page(call, client, choice)
    can_go_on = not page.is_complete and len(page.next_positions) <= CURSORS_MAX
    origins = sum(find_origin(record.headers) is not None for record in page.records)
    return call.page(
        "records.html",
        topic=topic,
        tab="records",
        choice=choice,
        rows=make_rows(call, choice, page.records),
        page=page,
        following=write_positions(page.next_positions) if can_go_on else "",
        dead_letters=origins,
        has_parquet=find_spec("pyarrow") is not None,
        has_registry=call.console.decoder.has_registry,
        copies=copying.copy_records(
            call.console.options,
            choice.topic,
            partition=choice.partition,
            start=choice.start,
            number=choice.number,
            limit=choice.limit,
            search=choice.search,
        ),
    )


def export(call: Call) -> Response:
    """What the records page shows, or more of it, as a file."""
    choice = read_choice(call, EXPORT_MAX)
    with call.console.clients.borrow() as client:
        records = read_page(call, client, choice).records
    decoder = call.console.decoder
    kind = call.choice("as", ("csv", "jsonl", "parquet"))
    if kind == "csv":
        body, media = to_csv(records, decoder, choice.key_format, choice.value_format), "text/csv; charset=utf-8"
    elif kind == "jsonl":
        body, media = to_json_lines(records, decoder, choice.key_format, choice.value_format), "application/jsonl"
    else:
        if find_spec("pyarrow") is None:
            raise BadInput("Parquet needs the extra 'spark' of Ottla")
        body, media = to_parquet(records), "application/vnd.apache.parquet"
    name = f"{quote_segment(choice.topic)}.{kind}"
    return Response(body, media_type=media, headers={"Content-Disposition": f'attachment; filename="{name}"'})


async def follow(request: Request) -> Response:
    """New records as they arrive, as server-sent events: each has rows of the table as HTML."""
    state = request.app.state
    call = Call(state.console, state.templates, request, {})
    try:
        choice = read_choice(call)
        matches = make_search(call, choice)
        positions = await run_in_threadpool(_find_ends, call, choice)
    except Exception as error:
        return answer_error(call, error)
    return StreamingResponse(_send_events(call, choice, matches, positions), media_type="text/event-stream")


async def _send_events(
    call: Call, choice: Choice, matches: Matcher | None, positions: dict[int, int]
) -> AsyncIterator[str]:
    yield "retry: 2000\n\n"
    is_away = False
    while not await call.request.is_disconnected():
        try:
            found = await run_in_threadpool(_read_new, call, choice, matches, positions)
        except Unreachable as error:  # a broker that is restarted: nothing is missed, because the positions stay
            is_away = True
            yield make_event("away", str(error))
            await asyncio.sleep(AWAY_S)
            continue
        except KafkaError as error:
            yield make_event("trouble", explain(error))
            return
        if is_away:
            is_away = False
            yield make_event("back", "")
        if found:
            rows = make_rows(call, choice, found[:FOLLOW_ROWS_MAX])
            html = call.render("record_rows.html", rows=rows, topic_name=choice.topic, choice=choice, fresh=True)
            yield make_event("records", html)
        else:
            yield ": nothing new\n\n"
        await asyncio.sleep(FOLLOW_S)


def make_event(name: str, data: Any) -> str:
    """One server-sent event; the data is JSON, so that it has no line breaks."""
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"


def _find_ends(call: Call, choice: Choice) -> dict[int, int]:
    snapshot = call.console.metadata.get()
    topic = snapshot.topic(choice.topic)
    places = [
        TopicPartition(choice.topic, part.number)
        for part in topic.partitions
        if choice.partition in (None, part.number)
    ]
    with call.console.clients.borrow() as client:
        ends = list_offsets(client, snapshot, places, LATEST, choice.isolation)
    return {where.partition: end for where, end in ends.items()}


def _read_new(call: Call, choice: Choice, matches: Matcher | None, positions: dict[int, int]) -> list[FoundRecord]:
    """The records since the positions, which are moved on; the newest ones if there are more than a page can show."""
    ends = _find_ends(call, choice)
    found: list[FoundRecord] = []
    with call.console.clients.borrow() as client:
        for partition, end in ends.items():
            start = max(positions.get(partition, end), end - 10 * FOLLOW_ROWS_MAX)
            records = read_range(client, TopicPartition(choice.topic, partition), start, end, choice.isolation)
            found += [record for record in records if matches is None or matches(record)]
            positions[partition] = end
    found.sort(key=lambda record: (record.timestamp, record.partition, record.offset), reverse=True)
    return found


def show_form(call: Call) -> Response:
    """The form for a new record, filled with an existing one if `partition` and `offset` name it."""
    name = call.path("name")
    topic = call.console.metadata.get().topic(name)
    record = None
    if call.text("offset"):
        partition = call.number("partition", 0, 0, (1 << 31) - 1)
        offset = call.number("offset", 0, 0, INT64_MAX - 1)
        with call.console.clients.borrow() as client:
            record = next(read_range(client, TopicPartition(name, partition), offset, offset + 1), None)
        if record is None:
            raise BadInput(f"there is no record at offset {offset} of partition {partition}")
    form: dict[str, str] = {"key": "", "value": "", "headers": "", "key_kind": "text", "value_kind": "text"}
    if record is not None:
        for part, content in (("key", record.key), ("value", record.value)):
            form[part], form[f"{part}_kind"] = _to_form(content, part)
        form["headers"] = "\n".join(_write_header(header, value) for header, value in record.headers)
    return call.page(
        "produce.html",
        topic=topic,
        tab="produce",
        record=record,
        form=form,
        codecs=list(CODECS),
        copies=copying.copy_produce(call.console.options, name),
    )


def _to_form(content: bytes | None, part: str) -> tuple[str, str]:
    """As text if the browser sends the same bytes back: fields change line breaks, and an empty key becomes null."""
    if content is None:
        return "", "null"
    text = _decode_plain(content)
    if text is None or (part == "key" and ("\n" in text or not text)):
        return content.hex(" "), "hex"
    return text, "text"


def _decode_plain(content: bytes) -> str | None:
    """None if the content is no text, or has characters that no field of a form keeps."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    return None if "\r" in text or "\0" in text else text


def _write_header(name: str, value: bytes | None) -> str:
    if value is None:
        return f"{name}{_NULL}="
    text = _decode_plain(value)
    is_plain = text is not None and "\n" not in text and not name.endswith((_HEX, _NULL))
    return f"{name}={text}" if is_plain else f"{name}{_HEX}={value.hex()}"


def _parse_header(line: str) -> tuple[str, bytes | None]:
    name, equals, content = line.partition("=")
    if not equals:
        raise BadInput(f"headers: {line!r} is not name=value")
    if name.endswith(_NULL) and not content:
        return name.removesuffix(_NULL), None
    if not name.endswith(_HEX):
        return name, content.encode()
    try:
        return name.removesuffix(_HEX), bytes.fromhex(content)
    except ValueError:
        raise BadInput(f"headers: {content!r} is not hexadecimal") from None


def send(call: Call) -> Response:
    name = call.path("name")
    partition = call.field("partition")
    codec = CODECS.get(call.field("codec", "none"))
    if codec is None:
        raise BadInput(f"there is no codec {call.field('codec')!r}")
    key, value = _from_form(call, "key"), _from_form(call, "value")
    lines = call.field("headers").replace("\r\n", "\n").split("\n")
    headers = [_parse_header(line) for line in lines if line.strip()]
    count = parse_number(call.field("count", "1") or "1", "count", 1, TIMES_MAX)
    with call.console.clients.borrow() as client:
        for _ in range(count):
            sent = send_record(
                client,
                name,
                parse_number(partition, "partition", 0, (1 << 31) - 1) if partition else None,
                key,
                value,
                headers,
                call.console.now_ms(),
                codec,
            )
    note = f"The record is at offset {sent.offset} of partition {sent.partition}."
    if count > 1:
        note = f"{write_number(count)} records are sent; the last is at offset {sent.offset} of {sent.partition}."
    return call.redirect(f"/topics/{quote_segment(name)}/records", note)


def _from_form(call: Call, part: str) -> bytes | None:
    kind, text = call.field(f"{part}_kind", "text"), call.field(part)
    if kind == "null" or (part == "key" and kind == "text" and not text):
        return None
    if kind == "hex":
        try:
            return bytes.fromhex(text)
        except ValueError:
            raise BadInput(f"{part}: not hexadecimal") from None
    return text.replace("\r\n", "\n").encode("utf-8", "replace")


def redrive_records(call: Call) -> Response:
    """Send the chosen dead letters (`partition:offset`) to where they came from, or to the named topic."""
    name = call.path("name")
    chosen = call.form.get("record", [])
    if not chosen:
        raise BadInput("choose the records to send back")
    if len(chosen) > REDRIVE_MAX:
        raise BadInput(f"at most {REDRIVE_MAX} records at once")
    letters = []
    with call.console.clients.borrow() as client:
        for text in chosen:
            partition, _, offset = text.partition(":")
            where = TopicPartition(name, parse_number(partition, "record", 0, (1 << 31) - 1))
            start = parse_number(offset, "record", 0, INT64_MAX - 1)
            record = next(read_range(client, where, start, start + 1), None)
            if record is not None:
                letters.append(DeadLetter(record.key, record.value, record.headers))
        sent = redrive(client, letters, call.console.now_ms(), call.field("target").strip() or None)
    text = ", ".join(f"{write_number(count)} to {topic}" for topic, count in sent.items())
    return call.redirect(f"/topics/{quote_segment(name)}/records", f"Sent back: {text}.")

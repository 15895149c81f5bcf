"""HttpSource: polls a URL. The offset of an answer is committed with its records, so each record is written once."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final
from urllib.parse import quote

from ottla.connect.connector import (
    MAX_ROWS,
    ConnectorContext,
    Part,
    Source,
    SourceBatch,
    SourceOffset,
    SourcePartition,
)
from ottla.connect.connectors.http.paging import OFFSET, SEEN, find_first_offset, read_page
from ottla.connect.connectors.http.server import Answer, Server
from ottla.connect.connectors.http.settings import NEXT_LINK, SOURCE_SETTINGS, list_source_headers, make_server
from ottla.connect.data.record import Record
from ottla.connect.errors import ConnectError, RetriableError
from ottla.connect.settings.definition import Settings

PAGES_MAX: Final = 100
"""Pages that a task reads in one round."""
ENTITY: Final = "entity"


class HttpSource(Source):
    settings: ClassVar[Settings] = SOURCE_SETTINGS
    version: ClassVar[str] = "1"

    def __init__(self, config: Mapping[str, Any], context: ConnectorContext) -> None:
        super().__init__(config, context)
        self._server = make_server(config, list_source_headers(config))
        self._entities: list[str] = list(config["entity.names"]) or [""]
        self._due_s: dict[str, float] = {}

    def plan(self, offsets: Mapping[str, SourceOffset]) -> Sequence[Part]:
        now_s = time.monotonic()
        due = [each for each in self._entities if self._due_s.get(each, now_s) <= now_s]
        for each in due:
            self._due_s[each] = now_s + self.config["request.interval.ms"] / 1000
        return [Part({ENTITY: each}) for each in due]

    def read(self, part: Part, offset: SourceOffset | None) -> Iterator[SourceBatch]:
        entity = str(part.partition[ENTITY])
        topic = self.config["topic.name.pattern"].replace("${entityName}", entity)
        at = dict(offset) if offset is not None else find_first_offset(self.config)
        rows = 0
        for _ in range(PAGES_MAX):
            url = self._make_url(entity, at)
            page = read_page(self.config, url, self._ask(url, entity, at), at)
            if page.records or page.offset != at:
                yield SourceBatch([[Record(topic, each) for each in page.records]], page.offset)
            at = page.offset
            rows += len(page.records)
            if not page.has_next or rows >= MAX_ROWS:
                return

    def check_offset(self, partition: SourcePartition, offset: SourceOffset | None) -> None:
        if not isinstance(partition.get(ENTITY), str):
            raise ConnectError(f'a partition of this source is {{"{ENTITY}": "name"}}, not {dict(partition)}')
        if offset is None:
            return
        seen = offset.get(SEEN, 0)
        if not isinstance(offset.get(OFFSET), str) or not isinstance(seen, int) or isinstance(seen, bool) or seen < 0:
            raise ConnectError(f'an offset of this source is {{"{OFFSET}": "text", "{SEEN}": 0}} or null, not {offset}')

    def _make_url(self, entity: str, offset: Mapping[str, Any]) -> str:
        if self.config["http.offset.mode"].upper() == NEXT_LINK and offset[OFFSET]:
            return str(offset[OFFSET])
        url = _fill(self.config["url"], entity, offset, is_url=True)
        separator = self.config["http.request.parameters.separator"]
        parameters = [each for each in self.config["http.request.parameters"].split(separator) if each]
        if not parameters:
            return url
        filled = "&".join(_fill(each, entity, offset, is_url=True) for each in parameters)
        return f"{url}{'&' if '?' in url else '?'}{filled}"

    def _ask(self, url: str, entity: str, offset: Mapping[str, Any]) -> Answer:
        method = self.config["http.request.method"].upper()
        body = _fill(self.config["http.request.body"], entity, offset, is_url=False).encode() or None
        more = {"Accept": "application/json"} | ({"Content-Type": "application/json"} if body else {})
        answer = ask_again(self.config, self._server, method, url, body if method == "POST" else None, more)
        if not answer.is_good:
            raise ConnectError(f"{method} {url.partition('?')[0]}: the server refuses it ({answer.describe()})")
        return answer


def ask_again(
    config: Mapping[str, Any], server: Server, method: str, url: str, body: bytes | None, more: Mapping[str, str]
) -> Answer:
    """Ask as often as `max.retries` says, if the server is away or busy. RetriableError if it stays so."""
    for _ in range(config["max.retries"]):
        try:
            return server.ask(method, url, body, more)
        except RetriableError:
            time.sleep(config["retry.backoff.ms"] / 1000)
    return server.ask(method, url, body, more)


def _fill(template: str, entity: str, offset: Mapping[str, Any], *, is_url: bool) -> str:
    values = {"${entityName}": entity, "${offset}": str(offset[OFFSET])}
    for name, text in values.items():
        template = template.replace(name, quote(text, safe="") if is_url else text)
    return template

"""What an answer of the server holds: its records, and where the next answer begins.

An offset is `{"offset": text, "seen": n}`: what `${offset}` stands for in the next request (the whole URL, of
NEXT_LINK), and how many records of that answer are written already. A last page that grows later is therefore read
again, and only what was added is written.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urljoin, urlsplit

from ottla.connect.connectors.http.server import Answer
from ottla.connect.connectors.http.settings import CHAINING, CURSOR_PAGINATION, NEXT_LINK, SIMPLE_INCREMENTING
from ottla.connect.errors import ConnectError

OFFSET: Final = "offset"
SEEN: Final = "seen"
_LINK: Final = re.compile(r"<([^>]*)>([^<]*)")
_IS_NEXT: Final = re.compile(r";\s*rel\s*=\s*\"?([^\";]*\s)?next(\s[^\";]*)?\"?\s*(;|,|$)", re.IGNORECASE)
_MISSING: Final = object()


class Page(NamedTuple):
    records: list[Any]
    """Those that are new."""
    offset: dict[str, Any]
    """After them."""
    has_next: bool
    """Whether another page is there now."""


def follow_pointer(document: Any, pointer: str) -> Any:
    """What a JSON pointer (RFC 6901) points to; None if that does not exist."""
    found = document
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping):
            found = found.get(name, _MISSING)
        elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        else:
            return None
        if found is _MISSING:
            return None
    return found


def find_first_offset(config: Mapping[str, Any]) -> dict[str, Any]:
    mode = config["http.offset.mode"].upper()
    first = config["http.initial.offset"]
    return {OFFSET: first or "0" if mode == SIMPLE_INCREMENTING else first, SEEN: 0}


def read_page(config: Mapping[str, Any], url: str, answer: Answer, offset: Mapping[str, Any]) -> Page:
    """ConnectError if the answer is not what the settings say."""
    try:
        document = json.loads(answer.body) if answer.body.strip() else None
    except ValueError as error:
        raise ConnectError(f"{url.partition('?')[0]}: the answer is no JSON: {error}") from None
    data = follow_pointer(document, config["http.response.data.json.pointer"])
    records = data if isinstance(data, list) else [] if data is None else [data]
    match config["http.offset.mode"].upper():
        case "SIMPLE_INCREMENTING":
            return Page(records, {OFFSET: str(int(offset[OFFSET]) + len(records)), SEEN: 0}, False)
        case "CHAINING":
            return Page(records, _chain(config, records, offset), False)
    new = records[int(offset.get(SEEN, 0)) :]
    following = _find_next(config, url, answer, document)
    if following is None or following == offset[OFFSET]:
        return Page(new, {OFFSET: offset[OFFSET], SEEN: max(len(records), int(offset.get(SEEN, 0)))}, False)
    return Page(new, {OFFSET: following, SEEN: 0}, True)


def _chain(config: Mapping[str, Any], records: list[Any], offset: Mapping[str, Any]) -> dict[str, Any]:
    if not records:
        return dict(offset)
    pointer = config["http.offset.json.pointer"]
    found = follow_pointer(records[-1], pointer)
    if found is None or isinstance(found, Mapping | list):
        raise ConnectError(f"the last record of an answer has no offset at http.offset.json.pointer={pointer}")
    return {OFFSET: found if isinstance(found, str) else json.dumps(found), SEEN: 0}


def _find_next(config: Mapping[str, Any], url: str, answer: Answer, document: Any) -> str | None:
    pointer, mode = config["http.next.page.json.pointer"], config["http.offset.mode"].upper()
    assert mode in (CURSOR_PAGINATION, NEXT_LINK) and mode != CHAINING
    found = follow_pointer(document, pointer) if pointer else _find_link(answer)
    if found in (None, "", False):
        return None
    if mode == CURSOR_PAGINATION:
        return found if isinstance(found, str) else json.dumps(found)
    following = urljoin(url, str(found))
    if urlsplit(following)[:2] != urlsplit(url)[:2]:
        raise ConnectError(f"{url.partition('?')[0]}: the next page is on another server: {following[:200]}")
    return following


def _find_link(answer: Answer) -> str | None:
    """The URL of the header Link whose relation is `next`."""
    for target, parameters in _LINK.findall(answer.headers.get("link", "")):
        if _IS_NEXT.search(parameters):
            return str(target)
    return None

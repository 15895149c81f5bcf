"""Templates, and how numbers, sizes and times are written for people."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ottla import __version__
from ottla.console.assets import TEMPLATES
from ottla.console.facts.quotas import write_amount

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
NOTHING = "\u2013"
_THIN = "\u202f"


def make_environment() -> Environment:
    """Every template escapes everything, whatever its name ends with."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": write_number,
        "size": write_size,
        "rate": write_rate,
        "when": write_time,
        "ago": write_duration,
        "segment": quote_segment,
        "json": json.dumps,
        "amount": write_amount,
    }
    environment.globals |= {"version": __version__, "make_query": make_query}
    return environment


def write_number(value: float | None) -> str:
    """With thin spaces between thousands: 1 234 567."""
    return NOTHING if value is None else f"{value:,}".replace(",", _THIN)


def write_size(value: float | None) -> str:
    if value is None or value < 0:
        return NOTHING
    size = float(value)
    for unit in _UNITS:
        if size < 1024 or unit == _UNITS[-1]:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1024
    return ""


def write_rate(value: float | None) -> str:
    if value is None:
        return NOTHING
    return f"{write_number(round(value))}/s" if value >= 10 or value == 0 else f"{value:.1f}/s"


def write_time(time_ms: int | None) -> str:
    """UTC with milliseconds; a time that no calendar has is written as its number."""
    if time_ms is None or time_ms < 0:
        return NOTHING
    try:
        found = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(time_ms)
    return found.strftime("%Y-%m-%d %H:%M:%S.") + f"{time_ms % 1000:03d}"


def write_duration(seconds: float | None) -> str:
    if seconds is None:
        return NOTHING
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds else "0 s"
    if seconds < 90:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    if seconds < 5_400:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3_600:
        return f"{seconds / 3_600:.1f} h"
    return f"{seconds / 86_400:.0f} days"


def quote_segment(text: str) -> str:
    """A name as a part of a path."""
    return quote(text, safe="")


def make_query(parameters: Mapping[str, Any], **changes: Any) -> str:
    """A query string: the parameters with some changed. Empty ones are left out."""
    merged = {**parameters, **changes}
    kept = {name: value for name, value in merged.items() if value not in (None, "", False)}
    return f"?{urlencode(kept)}" if kept else "?"

"""The configurations of connectors that docs/connect.md and the pages in docs/connect show."""

import json
import re

from benchmarks import PROJECT


def read_documented_config(name: str) -> dict[str, str]:
    """The configuration of the connector of this name."""
    docs = PROJECT / "docs"
    for page in (docs / "connect.md", *sorted((docs / "connect").glob("*.md"))):
        for block in re.findall(r"```json\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            found: dict[str, str] = json.loads(block)
            if found.get("name") == name:
                return found
    raise AssertionError(f"no page of docs/connect has a connector {name}")

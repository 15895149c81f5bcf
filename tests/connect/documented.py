"""The configurations of connectors that docs/connect.md shows."""

import json
import re

from benchmarks import PROJECT


def read_documented_config(name: str) -> dict[str, str]:
    """The configuration of the connector of this name."""
    text = (PROJECT / "docs" / "connect.md").read_text(encoding="utf-8")
    for block in re.findall(r"```json\n(.*?)```", text, re.DOTALL):
        found: dict[str, str] = json.loads(block)
        if found.get("name") == name:
            return found
    raise AssertionError(f"docs/connect.md has no connector {name}")

"""docs/streams.md: its Python runs, block after block in one program. What needs a running app is left out."""

from pathlib import Path
from typing import Any

import pytest

from tests.test_readme import blocks

PAGE = Path(__file__).parents[2] / "docs/streams.md"


@pytest.mark.usefixtures("spark")
def test_the_code_of_the_page_works() -> None:
    names: dict[str, Any] = {}
    found = [block for block in blocks("python", PAGE.read_text()) if "app.start()" not in block]
    assert len(found) == 8
    for block in found:
        exec(compile(block.replace("app.run()\n", ""), str(PAGE), "exec"), names)
        names["app"].describe()

"""Runs the programs and commands of a documentation page, and compares what they print with what the page says.

Blocks of Python run one after the other in one namespace. A block that follows the words "file `name.py`" is written to
that file instead. A block without a language that directly follows a program is what the program prints; `…` stands for
any text.
"""

import io
import re
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"file `([\w.]+)`[^\n]*\n\n$")
ADDRESS = "localhost:9092"


class Block(NamedTuple):
    language: str
    text: str
    file: str
    """The file that the page says the block is in, or nothing."""
    printed: str | None
    """The block of output that follows."""


def list_blocks(page: str) -> list[Block]:
    found: list[Block] = []
    fences = list(FENCE.finditer(page))
    for number, fence in enumerate(fences):
        following = fences[number + 1] if number + 1 < len(fences) else None
        is_output = following is not None and not following[2] and not page[fence.end() : following.start()].strip()
        file = FILE.search(page, 0, fence.start())
        printed = following[3] if following is not None and is_output else None
        if fence[2]:
            found.append(Block(fence[2], fence[3], file[1] if file else "", printed))
    return found


def run_programs(page: Path, directory: Path, bootstrap: str) -> None:
    """Runs the Python of a page. Fails if it prints something else than the page says."""
    names: dict[str, Any] = {"__name__": page.stem}
    for block in list_blocks(page.read_text()):
        if block.language != "python":
            continue
        program = block.text.replace(ADDRESS, bootstrap)
        if block.file:
            (directory / block.file).write_text(program)
            continue
        printed = io.StringIO()
        with chdir(directory), redirect_stdout(printed):
            exec(compile(program, f"{page.name}: {program.splitlines()[0]}", "exec"), names)
        assert fits(printed.getvalue(), block.printed or ""), f"{program}\nprints\n{printed.getvalue()}"
    names.clear()  # clients end before their broker does


def fits(printed: str, expected: str) -> bool:
    pattern = ".*".join(re.escape(piece) for piece in expected.split("…"))
    return re.fullmatch(pattern, printed) is not None

"""Whole lines of a file that grows, for every kind of end and every place where the file may end."""

import io
from collections.abc import Iterator
from random import Random

import pytest

from ottla.connect.connectors.files import lines
from ottla.connect.connectors.files.lines import has_line, read_lines


def read_all(data: bytes, position: int, rows_max: int) -> tuple[list[str], int]:
    found: list[str] = []
    for column, following in read_lines(io.BytesIO(data), position, rows_max):
        assert 0 < len(column) <= rows_max
        found += column.to_pylist()
        position = following
    return found, position


@pytest.fixture(params=[3, 7, 4096])
def small_chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(lines, "CHUNK_BYTES", request.param)
    monkeypatch.setattr(lines, "LOOK_BYTES", request.param)
    yield


@pytest.mark.usefixtures("small_chunks")
def test_lines_are_the_same_however_the_file_has_grown(seed: int) -> None:
    """Read at random moments while the file grows: the lines of the whole file come out, each once."""
    random = Random(seed)
    for _ in range(40):
        expected = ["".join(random.choices("aä€ ", k=random.randrange(5))) for _ in range(random.randrange(1, 12))]
        ends = random.choice(((b"\n",), (b"\n", b"\r\n", b"\rx\n")))
        data = b"".join(each.encode() + random.choice(ends) for each in expected)
        wanted = [part for line in data.decode().splitlines() for part in [line]]
        found: list[str] = []
        position = 0
        size = 0
        while size < len(data):
            size = min(size + random.randrange(1, 9), len(data))
            visible = data[:size]
            some, following = read_all(visible, position, random.randrange(1, 4))
            assert bool(some) == has_line(io.BytesIO(visible), position)
            found += some
            position = following
        assert found == wanted
        assert position == len(data)


def test_bytes_that_are_no_text_are_replaced() -> None:
    """As Java does when it decodes them."""
    assert read_all(b"a\xff\nb\n", 0, 10) == (["a\ufffd", "b"], 5)
    assert read_all(b"a\xff\nb\n\xf0\n", 0, 2) == (["a\ufffd", "b", "\ufffd"], 7)

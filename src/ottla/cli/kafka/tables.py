"""Tables as Kafka's tools print them: an empty line, titles, and columns that are at least so wide."""

from collections.abc import Sequence

MISSING = "-"


def show_columns(
    titles: Sequence[str], rows: Sequence[Sequence[object]], widths: Sequence[int], *, gap: bool = True
) -> None:
    """`gap`: an empty line comes first."""
    cells = [[MISSING if value is None else str(value) for value in row] for row in rows]
    wide = [
        max(width, *map(len, column)) for width, column in zip(widths, zip(titles, *cells, strict=True), strict=True)
    ]
    if gap:
        print()
    for line in (titles, *cells):
        print(" ".join(text.ljust(width) for text, width in zip(line, wide, strict=True)).rstrip())


def show_tabbed(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Columns of equal width with a tab after each."""
    cells = [[str(value) for value in row] for row in rows]
    wide = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    for line in (titles, *cells):
        print("".join(f"{text.ljust(width)}\t" for text, width in zip(line, wide, strict=True)))

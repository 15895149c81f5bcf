"""Java's date patterns are written and read as Java does."""

from datetime import UTC, date, datetime

import pytest

from ottla.connect.errors import BadConfig, RecordError
from ottla.connect.transforms.date_patterns import DatePattern

MOMENT = datetime(2004, 2, 9, 0, 5, 7, 45_000, UTC)
TODAY = date(2026, 1, 1)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'", "2004-02-09T00:05:07.045Z"),
        ("yy/M/d", "04/2/9"),
        ("EEE, d MMM yyyy", "Mon, 9 Feb 2004"),
        ("EEEE MMMM D u G", "Monday February 40 1 AD"),
        ("h:mm a|K|k|H", "12:05 AM|0|24|0"),
        ("SSSSSS S", "000045 45"),
        ("z Z X 'o''clock' ''", "UTC +0000 Z o'clock '"),
        ("yyyyyy", "002004"),
    ],
)
def test_dates_are_written(pattern: str, text: str) -> None:
    assert DatePattern(pattern, TODAY).format(MOMENT) == text


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("yyyy-MM-dd", "2004-02-09", datetime(2004, 2, 9, tzinfo=UTC)),
        ("yyyy-MM-dd", "2004-2-9 and more", datetime(2004, 2, 9, tzinfo=UTC)),
        ("yyyy-MM-dd", "2004-13-32", datetime(2005, 2, 1, tzinfo=UTC)),
        ("yyyyMMddHHmmss", "20040209000507", datetime(2004, 2, 9, 0, 5, 7, tzinfo=UTC)),
        ("dd MMM yyyy", "09 february 2004", datetime(2004, 2, 9, tzinfo=UTC)),
        ("yy", "45", datetime(2045, 1, 1, tzinfo=UTC)),
        ("yy", "46", datetime(1946, 1, 1, tzinfo=UTC)),
        ("yy", "2004", datetime(2004, 1, 1, tzinfo=UTC)),
        ("yyyy hh a", "2004 12 PM", datetime(2004, 1, 1, 12, tzinfo=UTC)),
        ("yyyy HHZ", "2004 10+0130", datetime(2004, 1, 1, 8, 30, tzinfo=UTC)),
        ("yyyy D", "2004 40", datetime(2004, 2, 9, tzinfo=UTC)),
        ("ss.SSS", "7.5", datetime(1970, 1, 1, 0, 0, 7, 5_000, UTC)),
    ],
)
def test_dates_are_read(pattern: str, text: str, expected: datetime) -> None:
    assert DatePattern(pattern, TODAY).parse(text) == expected


@pytest.mark.parametrize(("pattern", "text"), [("yyyy-MM", "2004/02"), ("MMM", "Foo"), ("Z", "x"), ("yyyy", "99999")])
def test_other_text_is_refused(pattern: str, text: str) -> None:
    with pytest.raises(RecordError):
        DatePattern(pattern, TODAY).parse(text)


@pytest.mark.parametrize(
    ("pattern", "trouble"),
    [
        ("YYYY", "'Y' cannot be used here"),
        ("yyyy-ww", "'w' cannot be used here"),
        ("b", "'b' is no letter"),
        ("yyyy'T", "unterminated quote"),
    ],
)
def test_patterns_that_cannot_be_used_are_refused(pattern: str, trouble: str) -> None:
    with pytest.raises(BadConfig, match=trouble):
        DatePattern(pattern, TODAY)

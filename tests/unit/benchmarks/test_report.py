"""The report: a ratio above one means that Ottla is better, whether a row counts speed or time."""

from benchmarks.report import (
    BEGIN,
    END,
    Measurement,
    Row,
    build_document,
    find_regressions,
    format_number,
    format_ratio,
    insert_text,
    render_table,
)

SPEED = Row("produce", "MB/s", more_is_better=True)
WAIT = Row("latency", "ms", more_is_better=False)


def test_a_ratio_above_one_means_that_ottla_is_better_in_both_directions() -> None:
    # Twice the speed and half the wait are both 2.0.
    assert Measurement(SPEED, ours=[200.0], peers=[100.0]).ratios() == [2.0]
    assert Measurement(WAIT, ours=[1.0], peers=[2.0]).ratios() == [2.0]


def test_the_ratio_is_the_median_of_pairs_and_not_the_ratio_of_medians() -> None:
    # A slow minute that hits both halves of one pair changes nothing.
    measurement = Measurement(SPEED, ours=[100.0, 10.0, 100.0], peers=[50.0, 5.0, 50.0])
    assert format_ratio(measurement) == "2.00x (2.00-2.00)"
    skewed = Measurement(SPEED, ours=[10.0, 100.0, 100.0], peers=[10.0, 10.0, 400.0])
    assert format_ratio(skewed) == "1.00x (0.25-10.00)"


def test_a_regression_is_a_row_that_is_worse_by_more_than_the_tolerance() -> None:
    # The median of the pairs decides, for speed and for time. A row without a peer is no regression.
    slower = Measurement(SPEED, ours=[90.0, 94.0, 100.0], peers=[100.0, 100.0, 100.0])
    longer = Measurement(WAIT, ours=[1.1], peers=[1.0])
    equal = Measurement(SPEED, ours=[96.0], peers=[100.0])
    assert find_regressions([slower, longer, equal, Measurement(SPEED, ours=[1.0])]) == [slower, longer]


def test_a_run_without_the_peer_has_no_ratio() -> None:
    # With `--alone` the column is empty rather than wrong.
    measurement = Measurement(SPEED, ours=[1.0])
    assert format_ratio(measurement) == "-"
    assert "| produce | MB/s | 1.00" in render_table([measurement], "peer")


def test_every_single_value_is_in_the_document() -> None:
    # Medians can be recomputed from the file; nothing is thrown away.
    described = build_document([Measurement(WAIT, ours=[1.0, 3.0], peers=[2.0, 3.0])], "peer", {"pairs": 2})
    assert described["rows"][0]["ottla"] == [1.0, 3.0]
    assert described["rows"][0]["ratios"] == [2.0, 1.0]
    assert described["conditions"] == {"pairs": 2}


def test_numbers_keep_three_digits() -> None:
    # Three digits are enough to compare, and too few to look exact.
    assert [format_number(value) for value in (12345.6, 123.4, 12.34, 1.234)] == ["12,346", "123", "12.3", "1.23"]


def test_a_page_with_marks_keeps_the_rest_of_itself() -> None:
    # The old text between the marks is replaced. A new file has the table and nothing else.
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert insert_text(page, "new") == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
    assert insert_text(insert_text(page, "new"), "old") == page
    assert insert_text("", "new") == "new\n"

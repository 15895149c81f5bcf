"""The comparison of brokers: which ones are compared, and in which order."""

import argparse
from pathlib import Path

import pytest

from benchmarks import PROJECT
from benchmarks.comparison import Results, Turns, add_peer_options, choose_contest, is_chosen, publish
from benchmarks.report import Row

SPEED = Row("produce", "MB/s", more_is_better=True)


def parse(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_peer_options(parser)
    return parser.parse_args(arguments)


def test_the_broker_that_goes_first_alternates() -> None:
    # A machine that gets slower and slower must not favour one side.
    assert list(Turns(pairs=3, sides=2).take("row", ("a", "b"))) == [0, 1, 1, 0, 0, 1]


def test_after_the_time_limit_a_row_has_one_pair() -> None:
    assert list(Turns(pairs=3, sides=2, patience_seconds=0).take("row", ("a", "b"))) == [0, 1]
    assert len(list(Turns(pairs=3, sides=2, patience_seconds=None).take("row", ("a", "b")))) == 6


def test_the_peer_is_apache_kafka_or_none() -> None:
    assert choose_contest(parse()).peer.startswith("Apache Kafka")
    assert len(choose_contest(parse()).makers) == 2
    assert len(choose_contest(parse("--alone")).makers) == 1


def test_another_checkout_runs_its_own_source(tmp_path: Path) -> None:
    # The checkout's `src` comes first on the module path. The broker of this tree has that of this tree.
    source = tmp_path / "src" / "ottla"
    source.mkdir(parents=True)
    (source / "__main__.py").touch()
    contest = choose_contest(parse("--against", str(tmp_path)))
    ours, peer = (make({}) for make in contest.makers)
    try:
        paths = [(broker.environment or {})["PYTHONPATH"].split(":")[0] for broker in (ours, peer)]
        assert paths == [str(PROJECT / "src"), str(tmp_path / "src")]
        assert peer.name == contest.peer
    finally:
        ours.stop()
        peer.stop()


def test_a_directory_without_ottla_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse("--against", str(tmp_path))
    assert "is no checkout of Ottla" in capsys.readouterr().err


def test_rows_are_chosen_by_patterns() -> None:
    assert is_chosen("consume-1000", "start, consume-*")
    assert not is_chosen("produce-100", "start, consume-*")


def test_against_a_checkout_the_rows_that_are_worse_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Ten percent slower is named, two percent slower is not.
    results = Results()
    for row, ours in ((SPEED, 90.0), (Row("consume", "MB/s", more_is_better=True), 98.0)):
        results.add(row, ours, side=0)
        results.add(row, 100.0, side=1)
    options = argparse.Namespace(markdown=None, json=None, against=tmp_path, alone=False)
    assert publish(results, options, choose_contest(options), "quiet", {}) == 0
    named = capsys.readouterr().out.partition("worse by more than 5%")[2]
    assert "produce: 0.90x" in named
    assert "consume" not in named

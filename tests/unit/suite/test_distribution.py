"""Which tests run in one process of a parallel run."""

from pathlib import Path

from tests.costs import TESTS
from tests.distribution import FILES, FIXTURES, GROUPS, group_of, read_groups, write_groups


def test_tests_are_grouped_by_the_expensive_fixtures_that_they_use() -> None:
    assert group_of("tests/spark/test_sql.py", ["tmp_path", "spark"]) == "spark"
    assert group_of("tests/spark/test_kafka.py", ["kafka_tools", "spark"]) == "spark"
    assert group_of("tests/streams/test_running.py", ["spark"]) == "streams"
    assert group_of("tests/clients/test_java.py", ["kafka_tools"]) == "kafka"
    assert group_of("tests/spark/test_kills.py", []) == "java"
    assert group_of("tests/clients/test_go.py", ["tmp_path"]) is None


def test_workers_learn_the_groups_from_a_file(tmp_path: Path) -> None:
    for _ in range(2):
        write_groups(tmp_path, {"tests/a.py::test_b[x]": "kafka"})
    assert read_groups(tmp_path) == {"tests/a.py::test_b[x]": "kafka"}
    assert len([*tmp_path.iterdir()]) == 1


def test_the_tables_name_existing_groups_and_files() -> None:
    assert {*FIXTURES.values(), *FILES.values(), "streams"} == {*GROUPS}
    assert [file for file in FILES if not (TESTS.parent / file).exists()] == []

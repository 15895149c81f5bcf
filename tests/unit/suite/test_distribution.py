"""Which tests run in one process of a parallel run."""

from tests.conftest import TESTS
from tests.distribution import FILES, FIXTURES, GROUPS, group_of, split_id


def test_tests_are_grouped_by_the_expensive_fixtures_that_they_use() -> None:
    assert group_of("tests/spark/test_sql.py", ["tmp_path", "spark"]) == "spark"
    assert group_of("tests/spark/test_kafka.py", ["kafka_tools", "spark"]) == "spark"
    assert group_of("tests/clients/test_java.py", ["kafka_tools"]) == "kafka"
    assert group_of("tests/spark/test_kills.py", []) == "java"
    assert group_of("tests/clients/test_go.py", ["tmp_path"]) is None


def test_a_test_is_handed_out_with_its_group_or_its_file() -> None:
    assert split_id("tests/a.py::test_b[x@y]@kafka") == ("tests/a.py::test_b[x@y]", "kafka")
    assert split_id("tests/a.py::test_b[x@y]") == ("tests/a.py::test_b[x@y]", "tests/a.py")
    assert split_id("tests/a.py::test_b") == ("tests/a.py::test_b", "tests/a.py")


def test_the_tables_are_true() -> None:
    assert {*FIXTURES.values(), *FILES.values()} == {*GROUPS}
    assert [file for file in FILES if not (TESTS.parent / file).exists()] == []

"""One line says what was skipped, and for what reason."""

import pytest

from tests.needs import require_program, summarise_skips


def test_skips_are_counted_by_what_they_need() -> None:
    reasons = ["Skipped: needs zsh (zsh is not installed)", "no device here is always full"]
    reasons += ["Skipped: needs Apache Kafka (mvn is not installed)"] * 2
    assert summarise_skips(reasons) == (
        "skipped: 2 tests need Apache Kafka (mvn is not installed), 1 test needs zsh (zsh is not installed), "
        "1 test (no device here is always full)"
    )


def test_a_program_is_found_or_its_test_is_skipped() -> None:
    assert require_program("sh").endswith("/sh")
    with pytest.raises(pytest.skip.Exception, match=r"^needs no-such-program \(no-such-program is not installed\)$"):
        require_program("no-such-program")

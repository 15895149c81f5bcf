"""Numbers read from /proc, compared with psutil, which reads them too."""

import psutil
import pytest

from ottla.observability import catalogue
from ottla.observability.process import parse_stat, read_process


def test_the_numbers_are_those_of_this_process() -> None:
    process = psutil.Process()
    found = dict(read_process())
    assert found[catalogue.RESIDENT_MEMORY] == pytest.approx(process.memory_info().rss, rel=0.1)
    assert found[catalogue.VIRTUAL_MEMORY] == pytest.approx(process.memory_info().vms, rel=0.1)
    times = process.cpu_times()
    assert found[catalogue.CPU_SECONDS] == pytest.approx(times.user + times.system, abs=0.2)
    assert found[catalogue.OPEN_FILES] == process.num_fds() - 1  # psutil counts the descriptor that it counts with
    assert found[catalogue.OPEN_FILES_MAX] == process.rlimit(psutil.RLIMIT_NOFILE)[0]
    assert found[catalogue.START_TIME] == pytest.approx(process.create_time(), abs=2)


def test_the_name_of_the_program_may_be_anything() -> None:
    # The name is in brackets among the numbers, and may contain blanks and brackets.
    numbers = " ".join(map(str, range(3, 53)))
    plain = parse_stat(f"1 (python) S {numbers}")
    assert parse_stat(f"1 (a) 9 (b c) S {numbers}") == plain
    assert plain == (13, 14, 21, 22, 23)

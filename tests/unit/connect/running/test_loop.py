"""What a loop says before its first batch has run."""

from collections.abc import Iterable
from typing import Any

from ottla.client.transactions import ProducerIdentity
from ottla.connect.running.loop import Loop, LoopContext
from ottla.connect.running.slots import TaskSlot
from ottla.connect.running.work import Order, Report, report_fields

PRODUCER = ProducerIdentity(7, 0, "id")


class TwoTasks(Loop):
    def start(self) -> None:
        """There is nobody to shut out."""

    def plan(self) -> list[Order]:
        return [Order(self.slots.find(key).number, PRODUCER) for key in ("a", "b")]

    def take(self, report: Report) -> None:
        """Nothing was committed."""

    def finish_round(self) -> None:
        """Nothing was committed."""

    def recover(self, slots: Iterable[TaskSlot]) -> None:
        """No task was fenced."""


class FakeJobs:
    def run(self, orders: list[Any]) -> list[Any]:
        return [report_fields(Report(order[0], PRODUCER)) for order in orders]


def test_tasks_are_announced_before_spark_is_waited_for() -> None:
    said: list[object] = []

    def make_jobs() -> Any:
        said.append("Spark")
        return FakeJobs()

    def announce() -> None:
        said.append(len([*loop.slots]))

    loop = TwoTasks(LoopContext("name", 2, make_jobs, None, str, announce))  # type: ignore[arg-type]
    assert loop.run_round()
    assert said == [2, "Spark"]

"""Filter: drops records, usually those that a predicate names."""

from typing import ClassVar

from ottla.connect.data.record import Record
from ottla.connect.transforms.transformation import Transformation


class Filter(Transformation):
    doc: ClassVar[str] = (
        "Drops all records, filtering them from subsequent transformations in the chain. This is intended to be used "
        "conditionally to filter out records matching (or not matching) a particular Predicate."
    )

    def apply(self, record: Record) -> Record | None:
        return None

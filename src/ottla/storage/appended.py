"""What an append returns."""

from dataclasses import dataclass


@dataclass(slots=True)
class Appended:
    """The offsets that an append gave to a batch."""

    base_offset: int
    last_offset: int
    log_append_time: int
    """The timestamp that the broker gave the batch; -1 if the records keep their own timestamps."""
    is_duplicate: bool
    """Whether the producer had sent the batch before: it was not written again, and these are its first offsets."""

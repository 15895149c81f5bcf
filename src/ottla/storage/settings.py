"""What a log needs to know of its topic's settings, as plain numbers: storage does not know the settings table."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogSettings:
    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * 24 * 60 * 60 * 1000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * 1024 * 1024
    index_interval_bytes: int = 4096
    producer_id_expiration_ms: int = 24 * 60 * 60 * 1000
    compacted: bool = False
    """Compaction leaves gaps between offsets; without it a gap between two unflushed segments is a loss."""
    retention_ms: int = -1
    """How old the newest record of a segment may get; negative: any age."""
    retention_bytes: int = -1
    """How large the log may be; negative: any size."""
    timestamps_ahead_ms: int = 2**63 - 1
    """A timestamp further ahead of the clock than this is not used as a segment's age."""

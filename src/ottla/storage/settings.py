"""What a log needs to know of its topic's settings, as plain numbers; the settings table itself is above storage."""

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

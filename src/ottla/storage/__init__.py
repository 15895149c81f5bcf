"""The log on disk, in Kafka's file formats. Synchronous: no asyncio here.

A partition's log
    log.py                  the log: append, read, roll, flush, close
    appended.py             the offsets that an append gave to a batch
    settings.py             what a log needs to know of its topic's settings
    rolling.py              when the active segment is sealed
    segments.py             the log's segments in order, its snapshots, files on their way out
    segment.py              one file of batches and its indexes
    index.py                the offset index and the time index, and the memory they may take
    transaction_index.py    the aborted transactions of a segment
    epochs.py               which leader epoch wrote which part of the log
    removed_deletes.py      up to where compaction has removed tombstones and markers
    producer_state.py       what a log remembers of its producers
    producer_snapshot.py    the file format of that state
    producer_restore.py     that state as of an offset, from snapshot and records
    scan.py                 from batch to batch in a segment file
    log_read.py             what a fetch returns
    timestamps.py           finding records by time
    retention.py            which segments are too old or too many
    flush.py                the fsyncs that make a log durable
    truncation.py           cuts off the end of a log, or starts it anew
    copying.py              copies a log into another directory while it is appended to
    removal.py              deleted files that wait to be unlinked
    cleaner/                compaction

Opening a log
    opening.py              creates a log, or opens one that is there
    recovery.py             what is read again after a crash
    leftovers.py            what a crash leaves besides whole segments
    damage_record.py        bytes that are known to be damaged
    partition_metadata.py   the topic id in a partition's directory
    names.py                the names of files in it

A data directory
    directories.py          its owner, its partitions, its checkpoints and marks
    foreign.py              topics of a data directory without metadata of ours

Disks
    files.py                the interface of a disk, and the operating system's
    overlay.py              a disk over another one that is never changed
    disk_errors.py          which errors pass, and which mean that the disk fails

Checking offline (`ottla log verify`)
    verification.py         a partition's directory against its records
    index_verification.py   its indexes
    epoch_verification.py   its leader epochs
"""

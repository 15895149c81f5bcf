"""Reads all files of a directory, so that a test can compare them with a later state."""

from pathlib import Path


def contents(directory: Path) -> dict[str, bytes]:
    """The content of every file below the directory, by path."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}

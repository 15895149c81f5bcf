"""What is in a directory, to be compared with what is in it later."""

from pathlib import Path


def contents(directory: Path) -> dict[str, bytes]:
    """Every file below it, by its path."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}

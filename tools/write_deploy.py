"""Writes the files of deploy/ that `ottla generate` prints.

python tools/write_deploy.py           # writes the files; a test fails when one is out of date
"""

from collections.abc import Mapping
from pathlib import Path

from ottla.cli.generate import build_files

FOLDER = Path(__file__).resolve().parent.parent / "deploy"

ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "systemd": ("systemd",),
    "docker": ("compose", "--source", "../.."),
    "prometheus": ("prometheus",),
    "alerts": ("alerts",),
    "grafana": ("grafana",),
}
"""What is given to `ottla generate` for the files of each part."""

FOLDERS = {"alerts": "prometheus"}
"""Parts that are in the folder of another."""


def build_deploy() -> dict[Path, str]:
    return {
        FOLDER / FOLDERS.get(part, part) / name: text
        for part, arguments in ARGUMENTS.items()
        for name, text in build_files(arguments).items()
    }


if __name__ == "__main__":
    for path, text in build_deploy().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")

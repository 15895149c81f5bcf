"""Collects the pages of the documentation site: docs/, and every file of the project that they link to.

python tools/build_pages.py build/pages        # `make docs` does this before it builds the site

A site has only its own files, so a link to `../README.md` or `../examples/stage.py` would lead nowhere. Pages of the
project are copied to `project/`; other files become pages in `source/` that show them. Links are changed to match.
"""

import os
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
CODE = re.compile(r"(^ *```.*?^ *```$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
LANGUAGES = {".py": "python", ".sh": "sh", ".yml": "yaml", ".yaml": "yaml", ".toml": "toml", ".json": "json"}
LARGEST_BYTES = 200_000


class Pages:
    def __init__(self, target: Path) -> None:
        self._docs = target / "docs"
        self._made: dict[Path, Path] = {}
        """Files of the project that are pages already, and where."""

    def build(self) -> None:
        shutil.copytree(ROOT / "docs", self._docs)
        for page in sorted(self._docs.rglob("*.md")):
            source = ROOT / "docs" / page.relative_to(self._docs)
            page.write_text(self._rewrite(source, page), encoding="utf-8")

    def _rewrite(self, source: Path, page: Path) -> str:
        """The text of a page, with links that work at its new place. Code is left alone."""
        pieces = CODE.split(source.read_text(encoding="utf-8"))
        for place in range(0, len(pieces), 2):
            pieces[place] = LINK.sub(
                lambda match: match[1] + self._move(match[2], source, page) + match[3], pieces[place]
            )
        return "".join(pieces)

    def _move(self, link: str, source: Path, page: Path) -> str:
        path, hash_sign, anchor = link.partition("#")
        if "://" in link or link.startswith("mailto:") or not path:
            return link
        target = (source.parent / path).resolve()
        if target.is_relative_to(ROOT / "docs"):
            found = self._docs / target.relative_to(ROOT / "docs")
        else:
            found = self._find_page(target)
        return os.path.relpath(found, page.parent) + (hash_sign + anchor if found.suffix == ".md" else "")

    def _find_page(self, target: Path) -> Path:
        """The page of a file or directory outside docs/, which is made when it is first linked to."""
        if target not in self._made:
            name = target.relative_to(ROOT)
            is_page = target.suffix == ".md"
            made = self._docs / "project" / name if is_page else self._docs / "source" / f"{name}.md"
            self._made[target] = made
            made.parent.mkdir(parents=True, exist_ok=True)
            made.write_text(self._rewrite(target, made) if is_page else show_source(target), encoding="utf-8")
        return self._made[target]


def show_source(path: Path) -> str:
    """A page that shows a file, or lists a directory."""
    title = f"# {path.relative_to(ROOT)}\n\n"
    if path.is_dir():
        shown = [each for each in path.iterdir() if not each.name.startswith(("_", "."))]
        names = sorted(each.name + "/" * each.is_dir() for each in shown)
        return title + "".join(f"- `{name}`\n" for name in names)
    text = path.read_text(encoding="utf-8")[:LARGEST_BYTES]
    fence = "`" * 4
    return f"{title}{fence}{LANGUAGES.get(path.suffix, 'text')}\n{text.rstrip()}\n{fence}\n"


if __name__ == "__main__":
    Pages(Path(sys.argv[1])).build()

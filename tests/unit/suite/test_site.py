"""The pages of the documentation site: every link leads to a page or picture of the site, and every page is found."""

import re
from pathlib import Path

import pytest

from tools.build_pages import CODE, LINK, Pages

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def docs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("pages")
    Pages(target).build()
    return target / "docs"


def test_no_link_of_the_site_leads_out_of_it(docs: Path) -> None:
    broken = []
    for page in docs.rglob("*.md"):
        for link in LINK.findall(CODE.sub("", page.read_text())):
            path = link[1].partition("#")[0]
            target = (page.parent / path).resolve()
            if "://" not in link[1] and path and not (target.is_file() and target.is_relative_to(docs)):
                broken.append(f"{page.relative_to(docs)}: {link[1]}")
    assert broken == []


def test_files_of_the_project_are_pages(docs: Path) -> None:
    assert "](../README.md" not in (docs / "start.md").read_text()
    assert (docs / "project" / "ARCHITECTURE.md").exists()
    example = (docs / "source" / "examples" / "stage.py.md").read_text()
    assert (ROOT / "examples" / "stage.py").read_text().rstrip() in example


def test_the_menu_names_every_page_and_pages_that_exist() -> None:
    menu = set(re.findall(r"[:-] ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert menu == pages

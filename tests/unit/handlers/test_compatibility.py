"""docs/compatibility.md says what the handlers say."""

from tools.write_compatibility import PAGE, build_page


def test_the_page_is_what_the_handlers_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == build_page(), "run tools/write_compatibility.py"

"""The page of all settings is what the connectors declare."""

from ottla.connect.plugins.built_in import list_built_in
from ottla.connect.plugins.registry import CONNECTORS
from tools.write_connectors import PAGE, build_page


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == build_page(), "run tools/write_connectors.py"


def test_every_setting_is_described() -> None:
    """In a whole sentence, and once."""
    for plugin in list_built_in():
        if plugin.type in CONNECTORS:
            settings = plugin.settings.settings
            names = [each.name for each in settings]
            assert len(set(names)) == len(names), plugin.class_name
            assert [each.name for each in settings if not each.doc.strip().endswith((".", ")"))] == []

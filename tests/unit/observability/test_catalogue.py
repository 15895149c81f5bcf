"""The catalogue keeps the rules of Prometheus, and docs/metrics.md is what it says."""

import re

from ottla.config import BrokerConfig
from ottla.observability.catalogue import FAMILIES
from ottla.observability.metrics import COUNTER, HISTOGRAM
from tools.write_metrics import PAGE, build_page


def test_the_page_is_what_the_catalogue_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == build_page(), "run tools/write_metrics.py"


def test_the_page_names_settings_that_exist() -> None:
    named = re.findall(r"`(metrics\.[a-z.]+)`", build_page())
    assert named and set(named) <= set(BrokerConfig.table)


def test_names_are_unique_and_well_formed() -> None:
    # A counter ends with _total and nothing else does; help is one sentence.
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)
    for family in FAMILIES:
        assert re.fullmatch(r"(kafka|ottla|process)_[a-z0-9_]+", family.name)
        assert family.name.endswith("_total") == (family.kind == COUNTER), family.name
        assert not family.name.endswith("_bucket"), family.name
        assert family.help.endswith(".") and "\n" not in family.help and "|" not in family.help
        assert "le" not in family.labels, family.name
    samples = {f"{each.name}_{part}" for each in FAMILIES if each.kind == HISTOGRAM for part in ("sum", "count")}
    assert not samples & {family.name for family in FAMILIES}

"""docs/pictures/*-states.svg show what the tables say."""

from xml.etree import ElementTree

import pytest

from ottla.coordinators.classic.states import TRANSITIONS
from tools.draw_states import FOLDER, PICTURES, Picture, draw, find_arrows


@pytest.mark.parametrize("picture", PICTURES, ids=[picture.name for picture in PICTURES])
def test_a_picture_is_what_its_table_says(picture: Picture) -> None:
    assert (FOLDER / f"{picture.name}.svg").read_text(encoding="utf-8") == draw(picture), "run tools/draw_states.py"


def test_every_transition_and_reason_is_drawn() -> None:
    # A box for each state, an arrow for each pair of the table, each reason once below.
    (picture,) = (each for each in PICTURES if each.transitions is TRANSITIONS)
    assert len(list(find_arrows(picture))) == sum(len(followers) for followers in TRANSITIONS.values())
    texts = [element.text or "" for element in ElementTree.fromstring(draw(picture)).iter() if "text" in element.tag]
    for state, followers in TRANSITIONS.items():
        assert texts.count(state.value) == 1
        for reason in followers.values():
            assert len([text for text in texts if text.endswith(f". {reason}")]) == 1

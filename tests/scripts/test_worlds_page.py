"""The page of worlds shows its data."""

import json

from rlreps.worlds import WORLDS


def test_the_page_s_table_is_its_data_and_has_every_world(load):
    worlds_page = load("worlds_page")
    worlds = json.loads(worlds_page.DATA.read_text())["worlds"]
    assert [*worlds] == [*WORLDS]
    assert worlds_page.table(worlds) in worlds_page.PAGE.read_text()

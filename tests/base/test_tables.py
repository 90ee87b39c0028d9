"""The printer of tables."""

from minigrad.base.tables import columns


def test_columns_stand_below_each_other():
    assert columns([["a", "bb", "c"], ["aaa", "b", "de"]]) == ["a    bb  c", "aaa  b   de"]
    assert columns([["a", "bb", "c"], ["aaa", "b", "de"]], right=[1, 2]) == ["a    bb   c", "aaa   b  de"]
    assert columns([]) == []

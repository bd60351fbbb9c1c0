"""D-91: verbatim while free, then the owner's for good; later ones say whose they are."""

from __future__ import annotations

import itertools
import re
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moot.offers.name_table import MAX_OF_OWNER, NameTable, OwnedName


def test_a_name_is_shown_verbatim_while_it_is_free() -> None:
    names = NameTable()
    assert names.bind("files", "read_file") == "read_file"
    assert names.binding_of("read_file") == OwnedName("files", "read_file")


def test_a_later_member_of_the_same_name_says_whose_it_is() -> None:
    names = NameTable()
    names.bind("files", "read_file")
    assert names.bind("other", "read_file") == "other__read_file"
    assert names.bind("third", "read_file") == "third__read_file"
    assert names.binding_of("other__read_file") == OwnedName("other", "read_file")


def test_binding_again_gives_the_same_name() -> None:
    names = NameTable()
    assert [names.bind("a", "x") for _ in range(3)] == ["x"] * 3
    assert names.bind("b", "x") == names.bind("b", "x") == "b__x"
    assert len(names) == 2


def test_a_newcomer_never_takes_a_name_over() -> None:
    """Nothing is ever unbound, so it does not matter who is here."""
    names = NameTable()
    names.bind("bank", "pay")
    for number in range(100):
        assert names.bind(f"thief{number}", "pay") != "pay"
    assert names.binding_of("pay") == OwnedName("bank", "pay")


def test_reserved_names_are_nobodys() -> None:
    names = NameTable(["moot_chat"])
    assert names.bind("evil", "moot_chat") == "evil__moot_chat"
    assert names.binding_of("moot_chat") is None
    assert not names.restore("moot_chat", "evil", "moot_chat")


def test_a_name_made_to_look_like_anothers_later_name_does_not_become_it() -> None:
    names = NameTable()
    names.bind("a", "x")
    assert names.bind("evil", "b__x") == "b__x"
    shown = names.bind("b", "x")
    assert shown is not None
    assert re.fullmatch(r"b__x_[0-9a-f]{6}", shown)


def test_names_that_clients_refuse_are_cleaned_cut_and_told_apart_by_a_hash() -> None:
    names = NameTable()
    for name in ("lire le fichier", "lire_le_fichier", "x" * 65, "x" * 66, "", "été", "a/b", "a b"):
        shown = names.bind("member", name)
        assert shown is not None
        assert re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", shown), shown
    assert len({shown for shown, _, _ in names}) == 8


def test_names_do_not_depend_on_the_process() -> None:
    """A hash that Python salts would give another name at each start."""
    names = NameTable()
    assert names.bind("member", "a b") == "member__a_b_" + sha256(b"member\0a b").hexdigest()[:6]


def test_one_owner_cannot_fill_the_catalogue() -> None:
    names = NameTable()
    shown = [names.bind("flood", f"tool{number}") for number in range(MAX_OF_OWNER + 10)]
    assert shown.count(None) == 10
    assert names.bind("modest", "tool") == "tool"


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.text(st.characters(codec="utf-8"), max_size=70)), max_size=40
    )
)
def test_every_shown_name_is_unique_short_plain_and_leads_back(things: list[tuple[str, str]]) -> None:
    names = NameTable(["moot_chat"])
    for owner, name in things:
        shown = names.bind(owner, name)
        assert shown is not None
        assert len(shown) <= 64
        assert re.fullmatch(r"[A-Za-z0-9_.-]+", shown)
        assert names.binding_of(shown) == OwnedName(owner, name)
        assert names.bind(owner, name) == shown
    assert len(names) == len(set(things))
    again = NameTable(["moot_chat"])
    assert all(again.restore(*binding) for binding in names)
    assert list(again) == list(names)


@pytest.mark.parametrize(
    "binding",
    [("b__x", "a", "x"), ("y", "a", "x"), ("x" * 65, "a", "x" * 65), ("", "a", "")],
)
def test_a_kept_binding_that_could_not_have_been_made_is_not_taken_over(
    binding: tuple[str, str, str],
) -> None:
    assert not NameTable().restore(*binding)


def test_restored_names_keep_newcomers_out() -> None:
    names = NameTable()
    assert names.restore("read_file", "files", "read_file")
    assert not names.restore("read_file", "other", "read_file")
    assert names.bind("aaa", "read_file") == "aaa__read_file"
    assert names.bind("files", "read_file") == "read_file"


def test_the_order_of_binding_decides_and_nothing_else() -> None:
    things = [("a", "x"), ("b", "x"), ("a", "y"), ("c", "x")]
    for order in itertools.permutations(things):
        first, second = NameTable(), NameTable()
        assert [first.bind(*each) for each in order] == [second.bind(*each) for each in order]

"""The quality score of a description (XP 4.6, D-62)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moot.xprotocol.search.name_words import inflected
from moot.xprotocol.translation.quality import ACTION_VERBS, Quality, quality_of
from tests.rows import for_each_row

# 49 characters, one verb, one subject.
EXAMPLE = "Read the contents of a file at the specified path"
FULL = "Read the contents of a file. Use this when you know exactly where the file lies."


def score(description: str, *subjects: str) -> float:
    return quality_of(description, subjects or ("file",)).score


@pytest.mark.requirement("XP-4.6-14")
def test_fifty_characters_gain_a_step_and_forty_nine_do_not() -> None:
    assert len(EXAMPLE) == 49
    assert score(EXAMPLE + "s") == pytest.approx(score(EXAMPLE) + 0.2)
    # Spaces around it are no description.
    assert score(f"   {EXAMPLE}   ") == score(EXAMPLE)


@pytest.mark.requirement("XP-4.6-15")
def test_an_action_verb_gains_a_step() -> None:
    for verb in ("Read", "reads", "Reading", "Deletes", "VALIDATE"):
        assert score(f"{verb} it") == pytest.approx(score("Nice it") + 0.2)


@pytest.mark.requirement("XP-4.6-16")
def test_naming_the_subject_gains_a_step() -> None:
    for subject in ("file", "files", "FILE", "File's"):
        assert score(f"Nice {subject}", "file") == pytest.approx(score("Nice thing", "file") + 0.2)
    assert score("Nice opportunity", "opportunities") == score("Nice opportunities", "opportunity") == 0.4
    assert score("profile", "file") == 0.2
    assert score("查询天气", "天气") == 0.4
    assert score("a birth certificate of yours", "birth certificate") == 0.4


@pytest.mark.requirement("XP-4.6-17")
@for_each_row(
    "guidance",
    [
        "Use this when it rains",
        "Use when it rains",
        "useful for rainy days",
        "Call this first",
        "if the user asks for rain",
        "Do not use it in summer",
        "should be used once",
        "instead of an umbrella",
        "Use this\n   when it rains",
    ],
)
def test_saying_when_to_use_it_gains_a_step(guidance: str) -> None:
    assert score(f"Read. {guidance}", "x") == pytest.approx(score("Read.", "x") + 0.2)


def test_user_and_unused_are_no_guidance() -> None:
    assert score("user interface, unused so far", "x") == 0.2


@pytest.mark.requirement("XP-4.6-18")
@pytest.mark.parametrize("phrase", ["does something", "handles", "manages", "Handles", "DOES  SOMETHING"])
def test_each_vague_phrase_forfeits_a_step(phrase: str) -> None:
    assert score(f"{FULL} It {phrase}.") == pytest.approx(score(FULL) - 0.2) == 0.8
    assert score(f"{FULL} It mis{phrase}ity.") == 1.0


@pytest.mark.requirement("XP-4.6-19")
def test_the_documents_example_scores_three_steps() -> None:
    """D-62: the printed 0.78 cannot be reached."""
    found = quality_of(EXAMPLE, ("file",))
    assert found.score == 0.6
    assert found.lacks == ("it has fewer than 50 characters", "it does not say when to use the tool")


@pytest.mark.requirement("XP-4.6-19")
@given(st.text(), st.lists(st.text(max_size=10), max_size=3))
def test_scores_move_in_fifths(description: str, subjects: list[str]) -> None:
    found = quality_of(description, subjects)
    assert found.score in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    assert len(found.lacks) == (1 if not description.strip() else 5 - round(found.score * 5))


@pytest.mark.parametrize("nothing", ["", "   ", "\n\t"])
def test_no_text_reaches_no_step(nothing: str) -> None:
    """D-62: not even the one for saying nothing vague."""
    assert quality_of(nothing, ("file",)) == Quality(0.0, ("there is no description",))


def test_the_documents_vague_tool_scores_one_step() -> None:
    """XP 4.6: handle_thing at 0.20."""
    assert score("Handles the thing", "thing") == 0.2


def test_the_issue_says_what_to_mend() -> None:
    issue = quality_of("Handles the thing", ("thing",)).issue
    for words in ("fewer than 50", "no verb", "when to use", "handles"):
        assert words in issue
    assert quality_of(FULL, ("file",)).issue == ""


def test_the_list_of_verbs_holds_plain_commands_only() -> None:
    assert all(verb.isascii() and verb.isalpha() and verb.islower() for verb in ACTION_VERBS)
    # `handle` and `manage` are what a vague description says.
    assert ACTION_VERBS.isdisjoint({"handle", "manage", "do", "be", "use"})
    assert len({form for verb in ACTION_VERBS for form in inflected(verb)}) == 3 * len(ACTION_VERBS)

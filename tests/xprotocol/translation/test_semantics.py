"""Verbs, subjects, domain, related schemas and the sentences about use (XP 4.6)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moot.xprotocol.contracts.contracts import Semantic
from moot.xprotocol.contracts.source_overrides import SemanticOverride
from moot.xprotocol.search.name_words import inflected, singular, words_of
from moot.xprotocol.translation.quality import ACTION_VERBS
from moot.xprotocol.translation.tool_semantics import (
    MAX_RELATED,
    MAX_SENTENCE_CHARS,
    MAX_SUBJECTS,
    VERB_ROWS,
    Sibling,
    Siblings,
    annotate,
    domain_of,
    read_name,
)
from tests.rows import for_each_row

FILES = (
    "read_file",
    "write_file",
    "delete_file",
    "list_directory",
    "get_weather",
    "fetch_file",
    "list_files",
)


def annotated(
    name: str, *siblings: str, description: str = "", override: SemanticOverride | None = None
) -> Semantic:
    return annotate(
        kind=f"com.acme.filesystem.{name}",
        namespace="com.acme.filesystem",
        description=description,
        parts=read_name(name),
        siblings=Siblings(Sibling(f"com.acme.filesystem.{s}", read_name(s)) for s in siblings),
        override=override,
    )


@pytest.mark.parametrize(
    ("prefixes", "verbs"),
    [
        pytest.param(
            "read get fetch",
            "read get fetch retrieve",
            marks=pytest.mark.requirement("XP-4.6-3"),
        ),
        pytest.param(
            "list search find",
            "list search find query",
            marks=pytest.mark.requirement("XP-4.6-4"),
        ),
        pytest.param(
            "create write add",
            "create write add insert",
            marks=pytest.mark.requirement("XP-4.6-5"),
        ),
        pytest.param(
            "update edit patch",
            "update edit modify patch",
            marks=pytest.mark.requirement("XP-4.6-6"),
        ),
        pytest.param(
            "delete remove",
            "delete remove destroy",
            marks=pytest.mark.requirement("XP-4.6-7"),
        ),
        pytest.param(
            "execute run invoke",
            "execute run invoke call",
            marks=pytest.mark.requirement("XP-4.6-8"),
        ),
    ],
)
def test_each_prefix_stands_for_the_verbs_of_its_row(prefixes: str, verbs: str) -> None:
    for prefix in prefixes.split():
        for name in (f"{prefix}_thing", f"{prefix}-thing", f"{prefix}Thing", f"{prefix.capitalize()} thing"):
            assert list(annotated(name).intent_verbs) == verbs.split()


@pytest.mark.requirement("XP-4.6-9")
@for_each_row(
    ("name", "verbs"),
    [
        ("insert_row", "create write add insert"),
        ("modify_row", "update edit modify patch"),
        ("destroy_row", "delete remove destroy"),
        ("call_row", "execute run invoke call"),
        ("retrieve_row", "read get fetch retrieve"),
        ("query_row", "list search find query"),
        ("handle_row", "handle"),
        ("validate_row", "validate"),
        ("天气", "天气"),
    ],
)
def test_a_verb_without_a_row_takes_the_family_that_names_it_or_itself(name: str, verbs: str) -> None:
    """D-64."""
    assert list(read_name(name).intent_verbs) == verbs.split()


@pytest.mark.parametrize(
    ("name", "subjects"),
    [
        pytest.param("read_file", "file", marks=pytest.mark.requirement("XP-4.6-10")),
        pytest.param(
            "list_opportunities", "opportunity opportunities", marks=pytest.mark.requirement("XP-4.6-11")
        ),
        ("get_opportunity_by_stage", "opportunity stage"),
        ("listAllUsers", "user users"),
        ("get_customer_orders_for_region", "order orders customer region"),
        ("search_by_name", "name"),
        ("handle_thing", "thing"),
        ("browser_click", "click browser"),
        ("weather", "weather"),
        ("delete", ""),
    ],
)
def test_subjects_are_what_follows_the_verb_up_to_a_preposition_then_the_rest(
    name: str, subjects: str
) -> None:
    """D-65."""
    assert list(read_name(name).data_subjects) == subjects.split()


@pytest.mark.requirement("XP-4.6-12")
def test_the_domain_is_what_follows_the_last_dot() -> None:
    assert domain_of("com.acme.filesystem") == "filesystem"
    assert domain_of("com.salesforce.crm") == "crm"
    assert domain_of("weather") == "weather"
    assert annotated("read_file").domain == "filesystem"


@pytest.mark.requirement("XP-4.6-13")
def test_related_are_the_other_deeds_to_the_same_subject_then_the_lists_of_containers() -> None:
    """D-65: read_file and fetch_file are one family, get_weather has another subject."""
    related = annotated("read_file", *FILES).related_schemas
    assert [kind.removeprefix("com.acme.filesystem.") for kind in related] == [
        "delete_file",
        "list_files",
        "write_file",
        "list_directory",
    ]
    assert all(kind.startswith("com.acme.filesystem.") for kind in related)
    assert annotated("read_file").related_schemas == ()
    assert annotated("get_weather", "read_file", "write_file").related_schemas == ()


def test_related_schemas_do_not_depend_on_the_order_of_the_list_and_are_bounded() -> None:
    verbs = sorted(ACTION_VERBS)[:40]
    names = [f"{verb}_file" for verb in verbs]
    one = annotated("read_file", *names).related_schemas
    assert one == annotated("read_file", *reversed(names)).related_schemas
    assert len(one) == MAX_RELATED
    assert list(one) == sorted(one)


@pytest.mark.parametrize(
    ("description", "sentence"),
    [
        ("Reads a file. Slowly.", "The task is to read a file"),
        ("Copy one file\nArgs: path", "The task is to copy one file"),
        ("A file reader", "The task is to read file. About the tool: A file reader"),
        ("", "The task is to read file"),
        ("...", "The task is to read file"),
    ],
)
def test_use_when_follows_from_the_first_sentence(description: str, sentence: str) -> None:
    assert annotated("read_file", description=description).use_when == sentence


def test_a_long_sentence_is_cut_between_words() -> None:
    semantic = annotated("read_file", description="Read " + "many words " * 40)
    assert semantic.use_when == "The task is to read" + " many words" * 16 + "…"
    assert len(annotated("x", description="天" * 500).use_when) <= MAX_SENTENCE_CHARS


def test_do_not_use_when_leads_to_the_tools_beside_it() -> None:
    semantic = annotated("read_file", "list_directory", "write_file")
    assert semantic.do_not_use_when == (
        "The task is to write file (use com.acme.filesystem.write_file), "
        "to list directory (use com.acme.filesystem.list_directory)"
    )
    assert annotated("read_file").do_not_use_when == "The task is not to read file"


@pytest.mark.requirement("XP-4.6-20")
def test_annotations_are_marked_as_generated_unless_every_one_was_written_by_hand() -> None:
    """D-63."""
    assert annotated("read_file").auto_generated is True
    most = {
        "domain": "d",
        "intent_verbs": ("v",),
        "data_subjects": (),
        "use_when": "u",
        "do_not_use_when": "n",
    }
    assert annotated("read_file", override=SemanticOverride(**most)).auto_generated is True  # type: ignore[arg-type]
    whole = SemanticOverride(**most, related_schemas=())  # type: ignore[arg-type]
    assert annotated("read_file", override=whole).auto_generated is False


@pytest.mark.requirement("XP-4.6-21", "XP-3.1-20", "XP-3.1-21", "XP-3.1-23", "XP-3.1-24")
def test_what_the_operator_wrote_stands() -> None:
    override = SemanticOverride(
        domain="archives",
        intent_verbs=("unearth",),
        data_subjects=("scroll",),
        use_when="someone asks about the past",
        do_not_use_when="it burns",
        related_schemas=("org.museum.read",),
    )
    semantic = annotated("read_file", *FILES, override=override)
    assert semantic.domain == "archives"
    assert semantic.intent_verbs == ("unearth",)
    assert semantic.data_subjects == ("scroll",)
    assert semantic.use_when == "someone asks about the past"
    assert semantic.do_not_use_when == "it burns"
    assert semantic.related_schemas == ("org.museum.read",)


@given(st.text(max_size=60), st.text(max_size=400))
def test_any_name_and_any_description_get_bounded_annotations(name: str, description: str) -> None:
    semantic = annotated(name, description=description)
    assert len(semantic.intent_verbs) >= 1
    assert len(semantic.data_subjects) <= MAX_SUBJECTS
    assert len(semantic.use_when) <= MAX_SENTENCE_CHARS
    assert semantic == annotated(name, description=description)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("read_file", "read file"),
        ("HTTPServerStatus", "http server status"),
        ("get-EC2-instances", "get ec2 instances"),
        ("math.factorial", "math factorial"),
        ("v2Search", "v2 search"),
        ("Ünïcode wörd", "Ü n ï code w ö rd"),
    ],
)
def test_names_come_apart_at_their_seams(name: str, words: str) -> None:
    assert words_of(name) == words.split()


@for_each_row(
    ("plural", "one"),
    [
        *(("opportunities", "opportunity"), ("files", "file"), ("addresses", "address"), ("boxes", "box")),
        *(
            ("status", "status"),
            ("analysis", "analysis"),
            ("news", "news"),
            ("people", "person"),
            ("gas", "gas"),
        ),
        *(("databases", "database"), ("branches", "branch"), ("series", "series"), ("indices", "index")),
        *(("movies", "movie"), ("class", "class"), ("dns", "dns"), ("responses", "response")),
    ],
)
def test_singulars(plural: str, one: str) -> None:
    assert singular(plural) == one
    assert singular(one) == one


def test_verbs_in_the_forms_that_descriptions_use() -> None:
    assert inflected("copy") == ("copy", "copies", "copying")
    assert inflected("fetch") == ("fetch", "fetches", "fetching")
    assert inflected("run") == ("run", "runs", "running")
    assert inflected("create") == ("create", "creates", "creating")
    assert inflected("undo") == ("undo", "undoes", "undoing")


def test_every_verb_of_the_document_counts_as_an_action() -> None:
    assert {verb for row in VERB_ROWS for verb in (*row[0], *row[1])} <= ACTION_VERBS

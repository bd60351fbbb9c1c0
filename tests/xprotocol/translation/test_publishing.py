"""From a server's lists to what is published of them, and what is said about the rest."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from moot.errors import UsageError
from moot.protocol.operation import Json
from moot.xprotocol.contracts.contracts import contract_json, read_contract
from moot.xprotocol.contracts.source_overrides import SchemaOverride, SemanticOverride
from moot.xprotocol.contracts.versions import EMPTY, load_registry, save_registry
from moot.xprotocol.events.event_composer import publish as publish_event
from moot.xprotocol.events.events import ANNOUNCE, canonical_json
from moot.xprotocol.translation.announcement import (
    MAX_LIST_BYTES,
    MirroredSource,
    WrappedSource,
    announce_payload,
    discovery_document,
    public_address,
)
from moot.xprotocol.translation.publication import Publication, ServerOffer, kinds_of, publish
from tests.examples import examples
from tests.xprotocol.digests import stamped
from tests.xprotocol.mirroring import mirror
from tests.xprotocol.people import BOB, NOW
from tests.xprotocol.tool_samples import NAMESPACE, READ_FILE, SAMPLE, settings, tool

VAGUE = tool("handle_thing", "Handles the thing")  # 0.20
SILENT = tool("get_secret", "")  # 0.00
THIN = tool("get_user", "Get a user")  # 0.60


def published(
    *tools: Json, taken: tuple[str, ...] = (), before: Publication | None = None, **more: Json
) -> Publication:
    registry = EMPTY if before is None else before.registry
    return publish(
        ServerOffer(tools=tools), settings(**more), adapter_version="0.1.0", taken=taken, registry=registry
    )


def names(publication: Publication) -> list[str]:
    return [contract.kind.removeprefix(f"{NAMESPACE}.") for contract in publication.contracts]


@pytest.mark.requirement("XP-1.2-2", "XP-4.4-1", "XP-4.6-2")
def test_everything_follows_from_the_servers_list_without_a_word_about_its_tools() -> None:
    found = published(*SAMPLE)
    assert names(found) == sorted(entry["name"] for entry in SAMPLE)
    for contract in found.contracts:
        assert contract.gbnf_grammar
        assert contract.semantic is not None
        assert contract.auth is not None


@pytest.mark.requirement("XP-2.2-13")
def test_publishing_changes_nothing_that_it_was_given() -> None:
    given = copy.deepcopy(SAMPLE)
    first = published(*SAMPLE)
    registry = first.registry
    again = published(*SAMPLE, before=first)
    assert given == SAMPLE
    assert registry == first.registry
    assert again.contracts == first.contracts
    assert published(*reversed(SAMPLE)) == first


@pytest.mark.requirement("XP-4.6-23", "XP-3.1-32", "XP-4.6-25")
def test_below_the_floor_nothing_is_published_and_both_bounds_are_the_sources_own() -> None:
    """D-62: 0.20 itself is published, below the threshold it is flagged."""
    found = published(SILENT, VAGUE, THIN)
    assert names(found) == ["get_user", "handle_thing"]
    assert [(low.kind, low.description_quality_score) for low in found.low_quality] == [
        (f"{NAMESPACE}.get_secret", 0.0),
        (f"{NAMESPACE}.handle_thing", 0.2),
    ]
    assert [(notice.about, notice.code) for notice in found.warnings] == [
        (f"{NAMESPACE}.get_secret", "withheld"),
        (f"{NAMESPACE}.handle_thing", "low_quality"),
    ]
    assert "schema_overrides" in found.warnings[0].message
    stricter = published(
        SILENT, VAGUE, THIN, description_quality_floor=0.4, description_quality_threshold=0.8
    )
    assert names(stricter) == ["get_user"]
    assert len(stricter.low_quality) == 3
    anything = published(SILENT, VAGUE, THIN, description_quality_floor=0, description_quality_threshold=0)
    assert len(anything.contracts) == 3
    assert not anything.low_quality
    assert not anything.warnings
    # A floor above the threshold still flags what it withholds.
    assert len(published(THIN, description_quality_floor=0.8).low_quality) == 1


@pytest.mark.requirement("XP-3.1-18", "XP-7.1-3")
def test_a_better_description_in_the_settings_gets_a_tool_published() -> None:
    better = SchemaOverride(description="Get the secret of a vault. Use this when the user owns the vault.")
    found = published(SILENT, schema_overrides={"get_secret": better})
    assert names(found) == ["get_secret"]
    assert found.contracts[0].description == better.description
    assert found.low_quality == ()


def test_only_tools_on_the_allow_list_are_published() -> None:
    tools = [tool("get_a"), tool("get_b"), tool("get_c")]
    found = published(*tools, tool_allowlist=("get_b", "get_z"))
    assert names(found) == ["get_b"]
    assert found.contracts[0].semantic is not None
    assert [(notice.about, notice.code) for notice in found.warnings] == [("get_z", "unknown_tool")]
    assert names(published(*tools, tool_allowlist=())) == []
    assert len(names(published(*tools))) == 3


@pytest.mark.requirement("XP-8.5-1")
def test_one_bad_tool_does_not_keep_the_others_back() -> None:
    bad = tool("get_bad", schema={"type": "object", "properties": {"a": {"$ref": "http://evil.example/"}}})
    found = published(bad, tool("get_good"), None, {"name": 5}, tool("get_cyclic", schema={"$ref": "#"}))
    assert names(found) == ["get_good"]
    assert [(entry.name, entry.reason) for entry in found.refused] == [
        ("", "malformed"),
        ("", "malformed"),
        ("get_bad", "external_reference"),
        ("get_cyclic", "recursive"),
    ]
    assert f"{NAMESPACE}.get_bad" not in found.registry.entries


def test_two_tools_of_one_name_are_one_when_alike_and_none_when_not() -> None:
    twice = published(tool("get_a"), tool("get_a"))
    assert names(twice) == ["get_a"]
    assert twice.warnings[0].code == "duplicate"
    differing = published(
        tool("get_a"), tool("get_a", schema={"type": "object", "title": "x"}), tool("get_b")
    )
    assert names(differing) == ["get_b"]
    assert differing.refused[0].reason == "duplicate_tool"


@pytest.mark.parametrize(
    "taken_name", ["read_x.result", "resource.updated", "prompt.review", "resource.subscribe"]
)
def test_no_kind_is_both_a_call_and_something_else(taken_name: str) -> None:
    review = {
        "name": "review",
        "description": "Review code. Use this when somebody asks for an opinion on code.",
    }
    offer = ServerOffer(
        tools=[tool("read_x"), tool(taken_name)], prompts=[review], resources=[{"uri": "a:b", "name": "r"}]
    )
    found = publish(offer, settings(), adapter_version="0.1.0")
    kinds = [kind for contract in found.contracts for kind in kinds_of([contract])]
    assert len(kinds) == len(set(kinds))
    assert [entry.reason for entry in found.refused] == ["kind_taken"]


def test_a_kind_of_another_source_is_taken() -> None:
    other = publish(ServerOffer(tools=[tool("get_a")]), settings("other"), adapter_version="0.1.0")
    found = published(tool("get_a"), tool("get_b"), taken=tuple(kinds_of(other.contracts)))
    assert names(found) == ["get_b"]
    assert found.refused[0].reason == "kind_taken"


def test_explicit_mode_leaves_out_what_has_no_right_listed() -> None:
    """D-61: and `validate` can tell by the reason."""
    explicit: Json = {"capability_inference": "explicit", "capabilities": ("read",)}
    found = published(tool("get_a"), tool("delete_a"), **explicit)
    assert names(found) == ["get_a"]
    assert found.refused[0].reason == "capability_not_listed"


def test_names_that_contradict_their_annotations_are_warned_about() -> None:
    """D-64."""
    found = published(tool("get_a", annotations={"destructiveHint": True}))
    assert [notice.code for notice in found.warnings] == ["contradiction"]
    strict = published(tool("get_a", annotations={"destructiveHint": True}), capability_inference="strict")
    assert strict.contracts[0].auth is not None
    assert strict.contracts[0].auth.required_capability == f"{NAMESPACE}.delete"


def test_examples_that_do_not_fit_are_warned_about() -> None:
    override = SchemaOverride(semantic=SemanticOverride(example_inputs=({"path": "a"}, {})))
    found = published(READ_FILE, schema_overrides={"read_file": override})
    assert [(notice.code, notice.message) for notice in found.warnings] == [
        ("example", "1 of 2 example_inputs do not fit the payload")
    ]


def test_withheld_tools_are_nobodys_relatives() -> None:
    found = published(READ_FILE, tool("write_file", ""), tool("delete_file"))
    read = next(contract for contract in found.contracts if contract.kind.endswith("read_file"))
    assert read.semantic is not None
    assert read.semantic.related_schemas == (f"{NAMESPACE}.delete_file",)


def test_versions_follow_the_tool_and_not_its_siblings() -> None:
    first = published(READ_FILE)
    more = published(READ_FILE, tool("write_file"), before=first)
    assert [(change.kind, change.version) for change in more.changes] == [
        (f"{NAMESPACE}.write_file", "1.0.0")
    ]
    changed = {**READ_FILE, "description": READ_FILE["description"] + ", quickly"}
    last = published(changed, tool("write_file"), before=more)
    assert [(change.version, change.level) for change in last.changes] == [("1.0.1", "patch")]
    assert next(c for c in last.contracts if c.kind.endswith("read_file")).version == "1.0.1"


def test_settings_that_cannot_work_are_a_mistake_even_without_tools() -> None:
    with pytest.raises(UsageError):
        published(schema_overrides={"x": SchemaOverride(required_capability="mail.read")})
    for wrong in ({"description_quality_floor": 1.5}, {"description_quality_threshold": -1}, {"name": ""}):
        with pytest.raises(UsageError):
            settings(**wrong)


ODD_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None), max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
ODD_TOOLS = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["get_a", "get_b", "read_x.result", "天", "\ud800"]) | ODD_JSON,
        "description": st.just("Get a thing. Use this when the thing is needed and nothing else will do.")
        | ODD_JSON,
        "inputSchema": st.just({"type": "object"})
        | ODD_JSON
        | st.builds(lambda value: {"type": "object", "properties": {"a": value}}, ODD_JSON),
        "outputSchema": ODD_JSON,
        "annotations": ODD_JSON | st.just({"destructiveHint": True}),
        "arguments": ODD_JSON | st.lists(st.fixed_dictionaries({"name": ODD_JSON}), max_size=2),
        "uri": ODD_JSON,
        "uriTemplate": ODD_JSON,
    },
)
ODD_LISTS = st.lists(ODD_TOOLS | ODD_JSON, max_size=4)


@given(ODD_LISTS, ODD_LISTS, ODD_LISTS, ODD_LISTS)
@hypothesis_settings(deadline=None, max_examples=examples(10))
def test_nothing_that_a_server_lists_raises_and_what_is_published_can_be_sent(
    tools: list[Json], prompts: list[Json], resources: list[Json], templates: list[Json]
) -> None:
    offer = ServerOffer(tools=tools, prompts=prompts, resources=resources, resource_templates=templates)
    found = publish(offer, settings(), adapter_version="0.1.0", compile=stamped)
    for contract in found.contracts:
        assert read_contract(json.loads(json.dumps(contract_json(contract)).encode())) == contract
    assert load_registry(save_registry(found.registry)) == found.registry
    assert all(entry.message for entry in found.refused)
    source = wrapped(found)
    assert canonical_json(announce_payload(display_name="a", adapter_version="0", mcp_sources=[source]))
    # Only a subscription cannot be a tool.
    subscriptions = {contract.kind for contract in found.contracts if contract.subscription}
    assert {kind for kind, _ in mirror(found.contracts, endpoint="xp://a").refused} <= subscriptions


def wrapped(publication: Publication, **more: Json) -> WrappedSource:
    about: Json = {"name": "filesystem", "transport": "stdio", "namespace": NAMESPACE}
    return WrappedSource(publication=publication, **(about | more))


@pytest.mark.requirement(
    "XP-3.1-3",
    "XP-3.1-33",
    "XP-6.3-1",
    "XP-6.3-2",
    "XP-6.3-3",
    "XP-11.1-11",
    "XP-11.3-9",
)
def test_the_announce_discloses_what_stands_behind_the_adapter() -> None:
    prompt = {"name": "review_code", "description": "Review code. Use this when somebody asks for it at all."}
    files = publish(
        ServerOffer(tools=[READ_FILE, SILENT], prompts=[prompt]), settings(), adapter_version="0.1.0"
    )
    crm = wrapped(
        published(tool("get_a"), tool("get_b")),
        name="salesforce-crm",
        transport="sse",
        namespace="com.salesforce.crm",
        url="https://user:pw@mcp.salesforce.com/sse?token=abc#x",
    )
    payload = announce_payload(
        display_name="Acme Corp Adapter",
        adapter_version="0.1.0",
        mcp_sources=[wrapped(files), crm],
        xprotocol_sources=[MirroredSource("weather-service", "xp://weather.example.com", 3)],
    )
    assert payload["display_name"] == "Acme Corp Adapter"
    assert payload["adapter_version"] == "0.1.0"
    assert payload["mcp_sources"] == [
        {"name": "filesystem", "transport": "stdio", "namespace": NAMESPACE, "tool_count": 1},
        {
            "name": "salesforce-crm",
            "transport": "sse",
            "url": "https://mcp.salesforce.com/sse",
            "namespace": "com.salesforce.crm",
            "tool_count": 2,
        },
    ]
    assert payload["xprotocol_sources"] == [
        {"name": "weather-service", "endpoint": "xp://weather.example.com", "tool_count": 3}
    ]
    assert "parent_key" not in payload
    announce = publish_event(BOB, ANNOUNCE, payload, now=NOW)
    assert announce.event.sender == BOB.key.text


@pytest.mark.requirement("XP-3.1-4")
def test_the_announce_names_the_parent_key_when_there_is_one() -> None:
    payload = announce_payload(display_name="a", adapter_version="0.1.0", parent_key="ed25519:abc")
    assert payload["parent_key"] == "ed25519:abc"


@pytest.mark.requirement("XP-4.6-22", "XP-11.1-5", "XP-11.3-5")
def test_the_announce_flags_what_is_described_poorly() -> None:
    payload = announce_payload(
        display_name="a", adapter_version="0.1.0", mcp_sources=[wrapped(published(VAGUE, SILENT, THIN))]
    )
    flagged = payload["low_quality_schemas"]
    assert [(entry["kind"], entry["description_quality_score"]) for entry in flagged] == [
        (f"{NAMESPACE}.get_secret", 0.0),
        (f"{NAMESPACE}.handle_thing", 0.2),
    ]
    assert all(entry["issue"] for entry in flagged)


def test_the_announce_warns_of_contradictions_and_changes_with_the_contracts() -> None:
    """D-64, D-71."""

    def announced(*tools: Json) -> Json:
        source = wrapped(published(*tools))
        return announce_payload(display_name="a", adapter_version="0.1.0", mcp_sources=[source])

    one = announced(tool("get_a", annotations={"destructiveHint": True}))
    assert one["warnings"][0]["kind"] == f"{NAMESPACE}.get_a"
    assert one["schemas_digest"] != announced(tool("get_b"))["schemas_digest"]
    assert one["schemas_digest"] == announced(tool("get_a"))["schemas_digest"]


def test_no_server_can_make_the_announce_too_long_to_send() -> None:
    tools = [tool(f"get_{'x' * 100}_{n}", "", annotations={"destructiveHint": True}) for n in range(600)]
    payload = announce_payload(
        display_name="a",
        adapter_version="0.1.0",
        mcp_sources=[
            wrapped(publish(ServerOffer(tools=tools), settings(), adapter_version="0.1.0", compile=stamped))
        ],
    )
    assert len(canonical_json(payload)) < 128 * 1024
    assert len(canonical_json(payload["low_quality_schemas"])) <= MAX_LIST_BYTES
    assert len(payload["low_quality_schemas"]) + payload["low_quality_schemas_omitted"] == 600
    assert len(payload["warnings"]) + payload.get("warnings_omitted", 0) == 600


@pytest.mark.requirement("XP-7.3-2", "XP-7.3-4", "XP-7.3-6", "XP-7.3-7")
def test_the_discovery_document_says_what_it_is_and_wraps() -> None:
    document = discovery_document(
        endpoint="wss://adapter.acme.com/xp",
        public_key=BOB.key.text,
        encryption_key=BOB.enc_key.text,
        schema_url="https://adapter.acme.com/xp/schemas",
        mcp_sources=["filesystem", "salesforce-crm"],
        xprotocol_sources=["weather-service"],
    )
    assert document == {
        "version": "xp1",
        "endpoint": "wss://adapter.acme.com/xp",
        "public_key": BOB.key.text,
        "encryption_key": BOB.enc_key.text,
        "schema_url": "https://adapter.acme.com/xp/schemas",
        "adapter": True,
        "mcp_sources": ["filesystem", "salesforce-crm"],
        "xprotocol_sources": ["weather-service"],
    }


def test_public_addresses_hold_no_credentials() -> None:
    assert public_address("http://localhost:3001/mcp") == "http://localhost:3001/mcp"
    assert public_address("https://u:p@h:1/a/b?key=1#f") == "https://h:1/a/b"

"""MCP prompts and resources as contracts (XP 4.5, D-78)."""

from __future__ import annotations

import re

import pytest

from moot.protocol.operation import Json
from moot.xprotocol.contracts.contracts import Contract, ContractRefused, contract_json, read_contract
from moot.xprotocol.contracts.payload_validation import Validator
from moot.xprotocol.translation.prompts import draft_prompt, payload_prompt, prompt_payload
from moot.xprotocol.translation.publication import Publication, ServerOffer, kinds_of, publish
from moot.xprotocol.translation.resources import (
    MAX_URI_CHARS,
    Subscribable,
    contents_payload,
    payload_contents,
    template_pattern,
)
from tests.rows import for_each_row
from tests.xprotocol.mirroring import mirror
from tests.xprotocol.tool_samples import NAMESPACE, settings, tool

REVIEW: Json = {
    "name": "review_code",
    "description": "Review a piece of code. Use this when somebody asks for an opinion on code.",
    "arguments": [
        {"name": "code", "description": "what to review", "required": True},
        {"name": "style", "title": "House style"},
    ],
}
RESULT: Json = {
    "description": "a review",
    "messages": [
        {"role": "user", "content": {"type": "text", "text": "Please review"}},
        {"role": "user", "content": {"type": "image", "data": "AAEC", "mimeType": "image/png"}},
        {"role": "assistant", "content": {"type": "text", "text": "Gladly"}},
    ],
    "_meta": {"vendor": 1},
}
LOG: Json = {"uri": "file:///var/log/app.log", "name": "log", "mimeType": "text/plain", "size": 5}
TEMPLATE: Json = {"uriTemplate": "file:///docs/{name}.md", "name": "docs"}


def published(offer: ServerOffer, **more: Json) -> Publication:
    return publish(offer, settings(**more), adapter_version="0.1.0")


def contract_of(offer: ServerOffer) -> Contract:
    (contract,) = published(offer).contracts
    return contract


@pytest.mark.requirement("XP-4.5-2", "XP-4.5-3", "XP-11.2-2")
def test_a_prompt_is_published_with_its_arguments_as_payload() -> None:
    shown = contract_json(contract_of(ServerOffer(prompts=[REVIEW])))
    assert shown["kind"] == "com.acme.filesystem.prompt.review_code"
    assert shown["payload"] == {
        "type": "object",
        "properties": {
            "code": {"type": "string", "description": "what to review"},
            "style": {"type": "string", "title": "House style"},
        },
        "required": ["code"],
    }
    assert shown["response"]["kind"] == "com.acme.filesystem.prompt.review_code.result"
    assert shown["source"]["mcp_prompt"] == "review_code"
    assert "mcp_tool" not in shown["source"]
    assert shown["auth"] == {"required_capability": "com.acme.filesystem.read"}
    assert shown["gbnf_grammar"]
    assert shown["semantic"]["data_subjects"] == ["code"]


@pytest.mark.requirement("XP-4.5-4")
def test_a_prompts_text_comes_back_as_the_payload_and_nothing_of_it_is_lost() -> None:
    contract = contract_of(ServerOffer(prompts=[REVIEW]))
    payload = prompt_payload(RESULT)
    assert payload["content"] == "Please review\nGladly"
    assert contract.response is not None
    assert Validator(contract.response.payload).accepts(payload)
    assert payload_prompt(payload) == RESULT
    assert payload_prompt({"content": "Hi"})["messages"][0]["content"] == {"type": "text", "text": "Hi"}


@for_each_row(
    "prompt",
    [
        None,
        {},
        {"name": 5},
        {"name": "a\u202e"},
        {"name": "x", "description": 5},
        {"name": "x", "arguments": "all"},
        {"name": "x", "arguments": [{"name": "a"}, {"name": "a"}]},
        {"name": "x", "arguments": [{"name": ""}]},
        {"name": "x", "arguments": ["a"]},
        {"name": "x", "arguments": [{"name": f"a{n}"} for n in range(513)]},
        {"name": "x", "arguments": [{"name": "a", "description": "\x1b[31m"}]},
    ],
)
def test_a_prompt_that_cannot_be_published_is_refused(prompt: Json) -> None:
    found = published(ServerOffer(prompts=[prompt, REVIEW]))
    assert [contract.kind for contract in found.contracts] == [f"{NAMESPACE}.prompt.review_code"]
    assert len(found.refused) == 1
    with pytest.raises(ContractRefused):
        draft_prompt(prompt, settings())


@pytest.mark.parametrize("result", [None, {}, {"messages": "x"}, []])
def test_what_is_no_prompt_is_refused_both_ways(result: Json) -> None:
    with pytest.raises(ContractRefused):
        prompt_payload(result)
    with pytest.raises(ContractRefused):
        payload_prompt(result)


@pytest.mark.requirement("XP-11.2-2")
def test_a_prompt_is_a_prompt_again_for_an_mcp_client_at_the_far_end() -> None:
    contract = read_contract(contract_json(contract_of(ServerOffer(prompts=[REVIEW]))))
    found = mirror([contract], endpoint="xp://acme.example", prefix="acme_")
    assert found.tools == ()
    (prompt,) = found.prompts
    assert prompt.as_prompt_json() == {
        "name": "acme_com_acme_filesystem_prompt_review_code",
        "description": (
            "Review a piece of code. Use this when somebody asks for an opinion on code.\n\n"
            "[XProtocol: com.acme.filesystem.prompt.review_code via xp://acme.example]"
        ),
        "arguments": [
            {"name": "code", "description": "what to review", "required": True},
            {"name": "style", "title": "House style", "required": False},
        ],
    }


@pytest.mark.requirement("XP-11.2-2")
def test_resources_are_published_as_one_subscription() -> None:
    """D-78."""
    contract = contract_of(ServerOffer(resources=[LOG], resource_templates=[TEMPLATE]))
    shown = contract_json(contract)
    assert shown["kind"] == "com.acme.filesystem.resource.subscribe"
    assert shown["payload"]["required"] == ["uri"]
    assert shown["auth"] == {"required_capability": "com.acme.filesystem.read"}
    assert shown["semantic"]["description_quality_score"] == 1.0
    assert shown["subscription"] == {
        "updated_kind": "com.acme.filesystem.resource.updated",
        "resources": [{"uri": "file:///var/log/app.log", "name": "log", "mimeType": "text/plain"}],
        "templates": [TEMPLATE],
    }
    assert kinds_of([contract]) == {
        "com.acme.filesystem.resource.subscribe",
        "com.acme.filesystem.resource.subscribe.result",
        "com.acme.filesystem.resource.updated",
    }
    assert read_contract(shown) == contract


def test_other_resources_are_no_other_version() -> None:
    first = published(ServerOffer(resources=[LOG]))
    again = publish(
        ServerOffer(resource_templates=[TEMPLATE]),
        settings(),
        adapter_version="0.1.0",
        registry=first.registry,
    )
    assert again.contracts[0].version == "1.0.0"
    assert again.changes == ()


def test_contents_pass_unaltered() -> None:
    read = {"contents": [{"uri": "file:///a", "text": "x", "_meta": {"v": 1}}], "vendor": True}
    payload = contents_payload("file:///a", read)
    assert payload == {**read, "uri": "file:///a"}
    assert payload_contents(payload) == read
    contract = contract_of(ServerOffer(resources=[LOG]))
    assert contract.response is not None
    assert Validator(contract.response.payload).accepts(payload)
    for wrong in (None, {}, {"contents": 5}):
        with pytest.raises(ContractRefused):
            contents_payload("file:///a", wrong)
        with pytest.raises(ContractRefused):
            payload_contents(wrong)


def test_a_list_of_resources_that_is_too_long_or_poisoned_is_cut_and_told() -> None:
    many = [{"uri": f"file:///{n}", "description": "x" * 100} for n in range(1_000)]
    odd = [
        {"uri": ""},
        {"name": "x"},
        "x",
        {"uri": "file:///" + "x" * MAX_URI_CHARS},
        {"uri": "a", "name": "\u202e"},
    ]
    found = published(ServerOffer(resources=[*odd, *many], resource_templates=[TEMPLATE]))
    (contract,) = found.contracts
    assert contract.subscription is not None
    assert 300 < len(contract.subscription.resources) < 700
    assert contract.subscription.templates == (TEMPLATE,)
    assert [notice.code for notice in found.warnings] == ["resources"] * 6


@for_each_row(
    ("template", "fits", "fits_not"),
    [
        (
            "file:///docs/{name}.md",
            ["file:///docs/a.md", "file:///docs/a%20b.md"],
            ["file:///docs/a/b.md", "x"],
        ),
        ("db://{table}/{id}", ["db://users/7"], ["db://users", "db://users/7/x", "db:///7"]),
        ("file:///{+path}", ["file:///a/b/c", "file:///a"], ["file:///", "http:///a"]),
        ("a:/x{/rest*}", ["a:/x", "a:/x/y/z"], ["a:/xy"]),
        ("a:/x{?q,limit}", ["a:/x", "a:/x?q=1&limit=2"], ["a:/x/y", "a:/x#y"]),
        ("a:/x?a=1{&q}", ["a:/x?a=1", "a:/x?a=1&q=2"], ["a:/x?a=2"]),
        ("a:/x{#part}", ["a:/x", "a:/x#y"], ["a:/xy"]),
        ("a:/x{.ext}", ["a:/x.md", "a:/x"], ["a:/xmd"]),
        ("a:/x{;p}", ["a:/x;p=1"], ["a:/xp"]),
        ("a:/(b)*[c].d", ["a:/(b)*[c].d"], ["a:/bbb", "a:/(b)*[c]xd"]),
        ("a:/{unclosed", ["a:/{unclosed"], ["a:/x"]),
    ],
)
def test_templates_stand_for_the_addresses_that_fill_them_in(
    template: str, fits: list[str], fits_not: list[str]
) -> None:
    """RFC 6570."""
    known = Subscribable([], [{"uriTemplate": template}])
    assert [uri for uri in fits if not known.allows(uri)] == []
    assert [uri for uri in fits_not if known.allows(uri)] == []
    assert re.compile(template_pattern(template))


def test_only_listed_addresses_and_filled_in_templates_can_be_subscribed_to() -> None:
    known = Subscribable([LOG, {"uri": 5}, None], [TEMPLATE, {}, {"uriTemplate": "f:///{+path}"}])
    assert known.allows("file:///var/log/app.log")
    assert known.allows("file:///docs/intro.md")
    assert not known.allows("file:///var/log/other.log")
    # What fills a gap never climbs (as D-11 has it for capabilities).
    for climbing in (
        "f:///a/../../etc/passwd",
        "f:///..",
        "f:///a/%2e%2e/b",
        "f:///a/%2E./b",
        "f:///a\\..\\b",
    ):
        assert not known.allows(climbing)
    assert known.allows("f:///a..b/c")
    assert known.allows("f:///" + "a" * (MAX_URI_CHARS - 5))
    assert not known.allows("f:///" + "a" * (MAX_URI_CHARS - 4))


@pytest.mark.parametrize(
    ("expose", "kinds"),
    [
        (("tools",), ["read_x"]),
        (("prompts",), ["prompt.review_code"]),
        (("resources",), ["resource.subscribe"]),
        (("tools", "prompts", "resources"), ["prompt.review_code", "read_x", "resource.subscribe"]),
        ((), []),
    ],
)
def test_a_source_exposes_what_its_switch_says(expose: Json, kinds: list[str]) -> None:
    """D-78."""
    offer = ServerOffer(tools=[tool("read_x")], prompts=[REVIEW], resources=[LOG])
    assert [c.kind.removeprefix(f"{NAMESPACE}.") for c in published(offer, expose=expose).contracts] == kinds

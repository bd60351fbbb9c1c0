"""Reading `gateway.oidc`: what would let the wrong people in is refused at the start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from moot.config import load
from moot.errors import UsageError
from moot.protocol.operation import Json

RULE: dict[str, Json] = {"match": {"sub": "*"}, "participant": "{sub}", "profile": "full", "spaces": ["lab"]}
GOOD: dict[str, Json] = {"issuer": "https://id.example", "audience": "moot", "people": [RULE]}


def read(folder: Path, oidc: Json) -> Any:
    file = folder / "moot.yaml"
    spaces = {"lab": {"participants": {"ana": {"tokens": ["t"], "capabilities": ["chat"]}}}}
    file.write_text(yaml.safe_dump({"gateway": {"oidc": oidc}, "spaces": spaces}))
    file.chmod(0o600)
    return load(file, environ={}, dry=True).gateway.oidc


def test_one_provider_or_a_list_of_them(tmp_path: Path) -> None:
    (one,) = read(tmp_path, GOOD)
    assert one.audience == ("moot",)
    assert one.people[0].profile == "full"
    assert len(read(tmp_path, [GOOD, GOOD | {"issuer": "https://other.example"}])) == 2
    assert read(tmp_path, None) == ()
    (local,) = read(tmp_path, GOOD | {"issuer": "http://127.0.0.1:9/realm"})
    assert local.issuer == "http://127.0.0.1:9/realm"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"issuer": "http://id.example"}, "must begin with https://"),
        ({"issuer": "id.example"}, "must be an address"),
        ({"jwks_url": "http://id.example/keys"}, "must begin with https://"),
        ({"audience": []}, "audience"),
        ({"audience": None}, "audience"),
        ({"people": []}, "nobody could sign in"),
        ({"max_token_seconds": 90_000}, "max_token_seconds"),
        ({"isuer": "x"}, "did you mean issuer"),
    ],
)
def test_settings_of_a_provider_that_would_let_others_in_are_refused(
    tmp_path: Path, change: dict[str, Json], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        read(tmp_path, GOOD | change)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"match": {}}, "is empty"),
        ({"match": {"groups": []}}, "nobody could match"),
        ({"match": {"level": 3}}, "must be text, true or false"),
        ({"participant": "{sub"}, "claims stand in braces"),
        ({"participant": "{}"}, "claims stand in braces"),
        ({"participant": "gateway"}, "reserved"),
        ({"participant": "ana"}, "whose rights stand there"),
        ({"participant": "bob", "profile": None}, "profile"),
        ({"spaces": ["other"]}, "there is no space other"),
        ({"spaces": []}, "spaces"),
        ({"profile": "ful"}, "did you mean full"),
        ({"groups": "x"}, "unknown key"),
    ],
)
def test_a_rule_that_cannot_be_meant_is_refused(tmp_path: Path, change: dict[str, Json], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read(tmp_path, GOOD | {"people": [RULE | change]})


def test_a_name_made_of_claims_needs_rights_of_its_own(tmp_path: Path) -> None:
    """Or whoever calls themselves `root` at the provider would be root."""
    bare = {key: value for key, value in RULE.items() if key != "profile"}
    with pytest.raises(UsageError, match="needs rights of its own"):
        read(tmp_path, GOOD | {"people": [bare]})
    (one,) = read(tmp_path, GOOD | {"people": [bare | {"participant": "ana"}]})
    assert one.people[0].capabilities is None


def test_an_issuer_stands_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="listed twice"):
        read(tmp_path, [GOOD, GOOD])


def test_a_variable_sets_it_in_a_cluster_too(tmp_path: Path) -> None:
    read(tmp_path, None)
    text = yaml.safe_dump(GOOD, default_flow_style=True, width=1_000).strip()
    gateway = load(tmp_path / "moot.yaml", environ={"MOOT_GATEWAY__OIDC": text}, dry=True).gateway
    assert gateway.oidc[0].issuer == "https://id.example"
    both = {"MOOT_GATEWAY__OIDC": text, "MOOT_GATEWAY__CLUSTER": "{servers: ['nats://127.0.0.1']}"}
    gateway = load(tmp_path / "moot.yaml", environ=both, dry=True).gateway
    assert gateway.oidc
    assert gateway.cluster is not None


MCP: dict[str, Json] = {"space": "lab", "server": "ana", "resource": "https://moot.example/mcp"}


def test_an_mcp_server_for_many_people_is_one_section_or_several(tmp_path: Path) -> None:
    scopes = {"read_scope": "moot:read", "call_scope": "moot:call"}
    (one,) = read(tmp_path, GOOD | {"mcp": MCP | scopes})
    assert one.mcp[0].audiences == ("https://moot.example/mcp",)
    assert one.mcp[0].scopes == ("moot:read", "moot:call")
    other = MCP | {"audience": "api://moot"}
    first, second = read(
        tmp_path, [GOOD | {"mcp": [MCP]}, GOOD | {"issuer": "https://b.example", "mcp": other}]
    )
    assert (first.mcp[0].audiences, second.mcp[0].audiences) == (
        ("https://moot.example/mcp",),
        ("api://moot",),
    )
    with pytest.raises(UsageError, match="its clients are told of one"):
        read(tmp_path, [GOOD | {"mcp": MCP | scopes}, GOOD | {"issuer": "https://b.example", "mcp": MCP}])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"audience": "moot"}, "the gateway's own"),
        ({"audience": ["x", "moot"]}, "the gateway's own"),
        ({"space": "hall"}, "no space hall"),
        ({"server": "bob"}, "no participant bob"),
        ({"resource": "http://moot.example/mcp"}, "must begin with https://"),
        ({"resource": "https://moot.example/mcp/"}, "no slash"),
        ({"resource": "https://moot.example/mcp?x=1"}, "no query"),
        ({"read_scope": 'a" b'}, "one word"),
        ({"call_scope": "moot:call"}, "read_scope: is missing"),
    ],
)
def test_an_mcp_server_that_would_take_tokens_of_others_is_refused(
    tmp_path: Path, change: dict[str, Json], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        read(tmp_path, GOOD | {"mcp": MCP | change})

"""A space's settings, read strictly: mistakes name their path."""

from __future__ import annotations

import pytest

from moot.config.space.space_reader import read_space
from moot.errors import UsageError
from moot.protocol.operation import Json
from tests.rows import for_each_row


def test_every_setting_is_read() -> None:
    config = read_space(
        "lab",
        {
            "participants": {
                "alice": {"capabilities": [{"kind": "*"}], "exclusive": True},
                "bot": ["mcp/proposal", "chat"],
            },
            "anonymous": ["chat"],
            "dialects": ["mew", "m3p"],
            "accept_protocols": ["mew/v0.3"],
            "delegation": "unrestricted",
            "invite_baseline": ["chat"],
            "kind_validation": "lazy",
            "enforce_pause": False,
            "reference_compat": True,
            "unmapped": "drop",
            "ack_delivery": "author",
            "status_delivery": "requester",
            "violation_notice": True,
            "separation_of_duties": True,
            "quorum": [{"payload": {"method": "tools/call"}, "approvals_needed": 2}],
            "connection_url": "ws://localhost/participants/{id}/ws",
            "limits": {"max_open_proposals": 3, "max_bytes": 100, "messages_per_second": 0.5},
        },
    )
    assert config.participants["alice"].exclusive
    assert [c.original for c in config.participants["bot"].capabilities] == ["mcp/proposal", "chat"]
    assert config.anonymous is not None
    assert config.dialects == {"mew", "m3p"}
    assert config.accept_protocols == {"mew/v0.3"}
    assert config.quorum[0].approvals_needed == 2
    assert config.quorum[0].pattern.matches("mcp/request", {"method": "tools/call"})
    assert (config.limits.max_open_proposals, config.limits.envelope.max_bytes) == (3, 100)
    assert (config.delegation, config.kind_validation, config.unmapped) == ("unrestricted", "lazy", "drop")
    assert (config.ack_delivery, config.status_delivery) == ("author", "requester")
    assert config.reference_compat
    assert config.violation_notice
    assert config.separation_of_duties
    assert not config.enforce_pause
    assert config.connection_url == "ws://localhost/participants/{id}/ws"


@for_each_row(
    ("settings", "path"),
    [
        ({"participant": {}}, "space.participant: unknown key"),
        ({"participants": {"gateway": []}}, "space.participants.gateway"),
        ({"participants": {"system:x": []}}, "space.participants.system:x"),
        ({"participants": {"a": {"token": "t"}}}, "space.participants.a.token: unknown key"),
        ({"participants": {"a": {"capabilities": [{"kin": "x"}]}}}, "space.participants.a.capabilities"),
        ({"participants": {"a": "chat"}}, "space.participants.a: must be a mapping"),
        ({"participants": {"a": {"exclusive": "yes"}}}, "space.participants.a.exclusive"),
        ({"dialects": []}, "space.dialects"),
        ({"dialects": ["klingon"]}, "space.dialects"),
        ({"delegation": "free"}, "space.delegation: must be one of covered, unrestricted"),
        ({"separation_of_duties": 1}, "space.separation_of_duties"),
        ({"last_vote_carries_out": 1}, "space.last_vote_carries_out"),
        ({"quorum": [{"approvals_needed": 1, "exempt": "a"}]}, r"space.quorum\[0\].exempt"),
        ({"quorum": [{"approvals_needed": 1, "exempt": ["a b"]}]}, r"space.quorum\[0\].exempt"),
        (
            {"quorum": [{"approvals_needed": 1, "payload": {"method": "tools/list"}}]},
            r"space.quorum\[0\].payload.method: a quorum is about calls",
        ),
        ({"accept_protocols": [1]}, "space.accept_protocols"),
        ({"quorum": [{"approvals_needed": True}]}, r"space.quorum\[0\].approvals_needed"),
        ({"quorum": [{"approvals_needed": 1, "wat": 2}]}, r"space.quorum\[0\]"),
        ({"quorum": [{"approvals_needed": 0}]}, r"space.quorum\[0\].approvals_needed"),
        ({"quorum": [{"approvals_needed": 1, "kind": "chat"}]}, r"space.quorum\[0\].kind"),
        ({"limits": {"max_recent_ids": 1.5}}, "space.limits"),
        ({"limits": {"envelope": {}}}, "space.limits.envelope: unknown limit"),
        ({"limits": {"open_doors": 1}}, "space.limits.open_doors: unknown limit"),
        ({"limits": {"max_open_proposals": -1}}, "space.limits.max_open_proposals"),
        ({"limits": {"max_open_proposals": True}}, "space.limits.max_open_proposals"),
        ({"connection_url": 3}, "space.connection_url"),
    ],
)
def test_a_mistake_names_its_path(settings: Json, path: str) -> None:
    with pytest.raises(UsageError, match=path):
        read_space("lab", settings)

"""Settings of the operator's MCP server: its limits, and which calls need no confirmation."""

from __future__ import annotations

from typing import Final

import msgspec

from moot.errors import UsageError
from moot.participant.decisions.seen_proposal import SeenProposal

# Narrow cases, not a policy: rules are for more than this.
MAX_UNCONFIRMED: Final = 32
_WILDCARDS: Final = frozenset("*?[]{}")


class UnconfirmedCall(msgspec.Struct, frozen=True):
    """One tool of one host, proposed by one member: an assistant may approve it without its person."""

    proposer: str
    host: str
    tool: str

    def matches(self, seen: SeenProposal, proposer: str) -> bool:
        """Whether a proposal is of this kind; `proposer` is the logical name of whoever made it."""
        return (
            proposer == self.proposer
            and seen.to == (self.host,)
            and seen.method == "tools/call"
            and seen.params.get("name") == self.tool
        )


class OperatorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the operator's MCP server behaves."""

    # The address of the gateway's web console; empty: not known.
    console: str = ""
    # Members that the assistant itself acts as, besides its person: their proposals are not for it.
    assistant_members: tuple[str, ...] = ()
    unconfirmed: tuple[UnconfirmedCall, ...] = ()
    # An approval answers at the latest after this, also while the approved tool still runs.
    answer_seconds: float = 20.0


def parse_unconfirmed(texts: list[str]) -> tuple[UnconfirmedCall, ...]:
    """Read PROPOSER:HOST:TOOL; raises UsageError for anything that is not three exact names."""
    if len(texts) > MAX_UNCONFIRMED:
        raise UsageError(
            f"--skip-confirmation: {len(texts)} calls, at most {MAX_UNCONFIRMED}; "
            "let rules decide what needs nobody (moot rules)"
        )
    return tuple(map(_parse, texts))


def _parse(text: str) -> UnconfirmedCall:
    parts = text.split(":", 2)
    if len(parts) != 3 or not all(part.strip() == part and part for part in parts):
        raise UsageError(
            f"--skip-confirmation needs PROPOSER:HOST:TOOL, as in agent:files:read_file, not {text!r}"
        )
    if _WILDCARDS & set(text):
        raise UsageError(
            f"--skip-confirmation {text!r}: a pattern is refused, name one proposer, one host and one tool"
        )
    return UnconfirmedCall(*parts)

"""Tools that ask their caller in the middle of a call: what they ask for, and what was answered."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from moot.protocol.operation import Json

if TYPE_CHECKING:
    from moot.participant import SeenProposal


def input_lines(seen: SeenProposal) -> list[str]:
    """For whoever decides: what was answered so far, and what is asked now."""
    given = [f"{seen.proposer} answered: {json.dumps(each, ensure_ascii=False)}" for each in seen.inputs]
    return [*given, *(f"it asks {seen.proposer}: {text}" for text in questions_in(seen.result))]


def questions_in(result: Mapping[str, Json] | None) -> list[str]:
    """What a result asks its caller for (MCP `input_required`), each in a line."""
    requests = None if result is None else result.get("inputRequests")
    lines: list[str] = []
    for each in requests.values() if isinstance(requests, dict) else []:
        request = each if isinstance(each, dict) else {}
        params = request.get("params")
        text = params.get("message") if isinstance(params, dict) else None
        lines.append(text if isinstance(text, str) else str(request.get("method")))
    return lines

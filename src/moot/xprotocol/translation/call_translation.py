"""What is asked and what comes back, between MCP and XProtocol (XP 5.1, 5.2, D-67, D-69).

Arguments are the payload, member by member. A result is mapped to the document's `content`, `encoding` and
`mimeType` (text joined, binary as base64) and `isError`; when that says less than the MCP result did (several
blocks, images beside text, `_meta`), the payload also carries the result itself as `mcp`, so that nothing is
lost between two adapters. A tool with an `outputSchema` answers its `structuredContent` and nothing else.
"""

from __future__ import annotations

from typing import Final

from moot.protocol import strict_json
from moot.protocol.operation import Json
from moot.xprotocol.contracts.contracts import Contract, ContractRefused
from moot.xprotocol.contracts.payload_validation import Validator
from moot.xprotocol.events.event_receiver import META, PROOFS, KindTerms

TEXT: Final = "utf-8"
BINARY: Final = "base64"
PLAIN: Final = "text/plain"
_CONTENT_MEMBERS: Final = frozenset({"content", "encoding", "mimeType", "isError", "mcp"})


def terms_of(contract: Contract) -> KindTerms:
    """What a receiver asks of those who call this contract of ours (XP 5.1, 8.3)."""
    if contract.auth is None:
        # Not "then anybody may".
        raise ContractRefused("malformed", f"{contract.kind} names no capability")
    declared = contract.payload.get("properties") if isinstance(contract.payload, dict) else None
    return KindTerms(
        capability=contract.auth.required_capability,
        check_payload=Validator(contract.payload).check,
        own_proofs=isinstance(declared, dict) and PROOFS in declared,
        own_meta=isinstance(declared, dict) and META in declared,
    )


def answers_structured(contract: Contract) -> bool:
    """Whether the contract promises members of its own instead of `content` (D-67)."""
    if contract.response is None or not isinstance(contract.response.payload, dict):
        return False
    declared = contract.response.payload.get("properties")
    return not (isinstance(declared, dict) and "content" in declared and declared.keys() <= _CONTENT_MEMBERS)


def result_payload(result: Json, *, structured: bool) -> Json:
    """XP 5.1: the payload of the `.result` event for a CallToolResult as it came over the wire.

    `structured` when the tool has an outputSchema. A result that reports an error, or lacks what it promised,
    is told as content: tool errors are data (D-69). Raises ContractRefused for what is no result.
    """
    if not isinstance(result, dict) or not isinstance(result.get("content", []), list):
        raise ContractRefused("malformed", "the server answered something that is no tool result")
    if "content" not in result and "structuredContent" not in result:
        raise ContractRefused("malformed", "the server answered without content: it may be asking for input")
    if structured and "structuredContent" in result and result.get("isError") is not True:
        return result["structuredContent"]
    payload = _content_of(result)
    if _tidy(_result_of_content(payload)) != _tidy(result):
        payload["mcp"] = {name: member for name, member in result.items() if name != "isError"}
    return payload


def payload_result(payload: Json, contract: Contract) -> dict[str, Json]:
    """XP 5.2: the CallToolResult for the payload of a `.result` event.

    Raises ContractRefused for an answer without the outputSchema's members, unless it reports an error.
    """
    # An answer that fits the members promised is one, even if it looks like content.
    problem = _misfit(payload, contract)
    structured = answers_structured(contract)
    if _is_content(payload) and (not structured or (problem is not None and payload.get("isError") is True)):
        return _whole_result(payload)
    if problem is not None:
        raise ContractRefused("malformed", f"it breaks the outputSchema of its contract: {problem}")
    result: dict[str, Json] = {
        "content": [{"type": "text", "text": strict_json.encode(payload).decode()}],
        "isError": False,
    }
    if structured and isinstance(payload, dict):
        result["structuredContent"] = payload
    return result


def _misfit(payload: Json, contract: Contract) -> str | None:
    """Where an answer breaks the outputSchema; `None` if it fits, or if there is none."""
    if contract.response is None or not answers_structured(contract):
        return None
    problems = Validator(contract.response.payload).problems(payload)
    return str(problems[0]) if problems else None


def _content_of(result: dict[str, Json]) -> dict[str, Json]:
    blocks = [block for block in result.get("content", []) if isinstance(block, dict)]
    texts = [found for block in blocks if (found := _text_of(block)) is not None]
    binaries = [found for block in blocks if (found := _binary_of(block)) is not None]
    if texts or not binaries:
        mime_type = texts[0][1] if len(texts) == 1 else PLAIN
        payload = {"content": "\n".join(t for t, _ in texts), "encoding": TEXT, "mimeType": mime_type}
    else:
        payload = {"content": binaries[0][0], "encoding": BINARY, "mimeType": binaries[0][1]}
    return payload | {"isError": result.get("isError") is True}


def _text_of(block: dict[str, Json]) -> tuple[str, str] | None:
    if block.get("type") == "text" and isinstance(block.get("text"), str):
        return block["text"], PLAIN
    resource = _resource_of(block)
    if isinstance(resource.get("text"), str):
        return resource["text"], _mime_type(resource, PLAIN)
    return None


def _binary_of(block: dict[str, Json]) -> tuple[str, str] | None:
    if block.get("type") in ("image", "audio") and isinstance(block.get("data"), str):
        return block["data"], _mime_type(block, f"{block['type']}/*")
    resource = _resource_of(block)
    if isinstance(resource.get("blob"), str):
        return resource["blob"], _mime_type(resource, "application/octet-stream")
    return None


def _resource_of(block: dict[str, Json]) -> dict[str, Json]:
    resource = block.get("resource") if block.get("type") == "resource" else None
    return resource if isinstance(resource, dict) else {}


def _mime_type(holder: dict[str, Json], otherwise: str) -> str:
    given = holder.get("mimeType")
    return given if isinstance(given, str) else otherwise


def _is_content(payload: Json) -> bool:
    return (
        isinstance(payload, dict)
        and isinstance(payload.get("content"), str)
        and payload.keys() <= _CONTENT_MEMBERS
        and isinstance(payload.get("encoding", TEXT), str)
        and isinstance(payload.get("mimeType", PLAIN), str)
        and isinstance(payload.get("isError", False), bool)
    )


def _whole_result(payload: dict[str, Json]) -> dict[str, Json]:
    carried = payload.get("mcp")
    if isinstance(carried, dict) and isinstance(carried.get("content", []), list):
        whole: dict[str, Json] = {"content": [], **carried, "isError": payload.get("isError") is True}
        described = {name: member for name, member in payload.items() if name != "mcp"}
        # What was carried has to say what was told: an audit that read `content` must have read the answer.
        if _content_of(whole) == {"encoding": TEXT, "mimeType": PLAIN, "isError": False} | described:
            return whole
    return _result_of_content(payload)


def _result_of_content(payload: dict[str, Json]) -> dict[str, Json]:
    content, mime_type = payload["content"], payload.get("mimeType", PLAIN)
    block: dict[str, Json] = {"type": "text", "text": content}
    if payload.get("encoding", TEXT) == BINARY:
        family = mime_type.partition("/")[0]
        if family in ("image", "audio"):
            block = {"type": family, "data": content, "mimeType": mime_type}
        else:
            resource = {"uri": "xprotocol:content", "mimeType": mime_type, "blob": content}
            block = {"type": "resource", "resource": resource}
    return {"content": [block], "isError": payload.get("isError") is True}


def _tidy(result: dict[str, Json]) -> dict[str, Json]:
    """Absent and false mean the same in `isError`."""
    return {"isError": False} | result

"""Errors of requests that were sent and got no readable answer: they may have been carried out (D-99).

The SDK's HTTP transport puts errors of its own in the place of such an answer, in the words of its libraries.
Only their texts tell them from errors of the server; here they are told in plain words, with the mark.
"""

from __future__ import annotations

from typing import Final

from moot.errors import McpError
from moot.mcp.eras import JsonObject
from moot.protocol.answer_marks import unknown_outcome
from moot.protocol.rpc_codes import INTERNAL_ERROR, INVALID_REQUEST, PARSE_ERROR

_NOT_KNOWN: Final = "whether the call had any effect is not known"
_UNREADABLE: Final = "the answer of the MCP server could not be read"
# The SDK's CONNECTION_CLOSED; importing it here would load the SDK for servers that need none of it.
_CONNECTION_CLOSED: Final = -32000
# Code and beginning of the SDK's text, and what it means.
_SDK_ERRORS: Final = (
    (PARSE_ERROR, "Failed to parse JSON response: ", _UNREADABLE),
    (PARSE_ERROR, "Failed to parse SSE message: ", _UNREADABLE),
    (INVALID_REQUEST, "Unexpected content type: ", _UNREADABLE),
    (
        INVALID_REQUEST,
        "server answered a request with 202 Accepted",
        "the MCP server took the request and did not answer",
    ),
    (_CONNECTION_CLOSED, "SSE stream ", "the answer of the MCP server broke off"),
)
_SDK_STATUS_ERROR: Final = "Server returned an error response"
# A text of ours, from the limit of a body, inside one of the SDK's.
TOO_LONG: Final = "an answer of more than "


def lost_answer(code: int, text: str) -> McpError:
    """An error that says that the outcome is unknown."""
    return McpError(code, text, unknown_outcome())


def explain_sdk_error(error: JsonObject, server_fault: str | None) -> JsonObject:
    """An error as the SDK's transport delivers it: the server's own stays as it is.

    `server_fault` is the HTTP status of the response, if it was 500 or above.
    """
    code, text = error.get("code"), str(error.get("message"))
    if error.get("data") is not None:
        return error
    if code == INTERNAL_ERROR and text == _SDK_STATUS_ERROR and server_fault is not None:
        return _explained(code, f"the MCP server answered {server_fault}")
    for known, beginning, meaning in _SDK_ERRORS:
        if code == known and text.startswith(beginning):
            _, found, limit = text.partition(TOO_LONG)
            if found:
                text = f"the MCP server carried it out and sent {found}{limit}, too large to be passed on"
                return {"code": known, "message": text, "data": unknown_outcome()}
            return _explained(known, meaning)
    return error


def _explained(code: int, what: str) -> JsonObject:
    return {"code": code, "message": f"{what}; {_NOT_KNOWN}", "data": unknown_outcome()}

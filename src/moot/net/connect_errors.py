"""Errors of connecting, as messages that say what to do, and an answer where a WebSocket was asked for."""

from __future__ import annotations

import socket
import ssl
from typing import Final
from urllib.parse import urlsplit

import orjson

from moot.errors import MootError, NotAdmitted, Unreachable
from moot.net.outbound import explain_untrusted
from moot.private_files import FileToken

_HINTS: Final = {
    401: "the gateway does not know this token: check the token, or have another one made",
    403: "the token is for another space, or this one does not admit its holder",
    404: "check the name of the space and the address",
    421: "the gateway does not know itself by this host name (gateway.allowed_hosts)",
}
# Of what the other side says.
_MAX_CHARACTERS: Final = 300
_SECURE: Final = {"https": "http", "wss": "ws"}
# Answers of a gateway that is busy, or of a proxy in front of one that restarts.
_TEMPORARY_STATUSES: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


class UpgradeRefused(MootError):
    """An HTTP answer where a WebSocket was asked for."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"HTTP {status}: {body[:400].decode('utf-8', 'replace')}")
        self.status = status
        self.body = body

    @property
    def is_temporary(self) -> bool:
        """Whether trying again later can help."""
        return self.status in _TEMPORARY_STATUSES


def explain_failed_request(url: str, fault: Exception, *, what: str = "a gateway") -> Unreachable:
    """An Unreachable for an HTTP request that failed, by the error of the system that is behind `fault`."""
    cause = fault.__cause__ or fault.__context__
    while cause is not None and not isinstance(cause, OSError | UnicodeError):
        cause = cause.__cause__ or cause.__context__
    unreachable = Unreachable(type(fault).__name__)
    unreachable.__cause__ = cause
    return explain_unreachable(url, unreachable, what=what)


def explain_unreachable(url: str, fault: Unreachable, *, what: str = "a gateway") -> Unreachable:
    """An Unreachable that says what to try; `what` should be there."""
    cause, address = fault.__cause__, without_query(url)
    start = f"{address} cannot be reached"
    match cause:
        case ConnectionRefusedError():
            message = f"{start}: connection refused. "
            if what == "a gateway":
                message += (
                    "No gateway runs there: start one with `moot up` or `moot serve`, or check the address"
                )
            else:
                message += "Check the address"
        case socket.gaierror():
            message = f"{start}: unknown host ({cause.strerror}). Check the address"
        case UnicodeError():
            message = f"{start}: unknown host (no machine can have this name). Check the address"
        case ssl.SSLCertVerificationError():
            message = f"{start}: {explain_untrusted(cause)}"
        case ssl.SSLError():
            message = f"{start}: the server there does not use TLS. Try {_without_tls(url)}, without the s"
        case TimeoutError():
            message = f"{start}: no answer in time. Check the address: something else may listen there"
        case OSError() if cause.strerror:
            message = f"{start}: {cause.strerror}. Check the address"
        case None:
            message = f"{address} is not {what}. Check the address and the port ({fault})"
        case _:
            message = f"{fault}"
    explained = Unreachable(message)
    explained.__cause__ = cause
    return explained


def explain_not_admitted(url: str, fault: UpgradeRefused, token: str | None = None) -> NotAdmitted:
    """A NotAdmitted for what a gateway answered in place of a WebSocket, or to a request over HTTP.

    A `token` that came from a file is named by that.
    """
    try:
        body = orjson.loads(fault.body)
        error = str(body.get("message") or body["error"])[:_MAX_CHARACTERS]
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        # A gateway answers errors in JSON.
        message = f"{without_query(url)} is not a gateway (HTTP {fault.status})"
        return NotAdmitted(f"{message}. Check the address and the port", status=fault.status)
    hint = _HINTS.get(fault.status, "the gateway did not let us in")
    if isinstance(token, FileToken) and fault.status in (401, 403):
        hint = _hint_about(token, fault.status)
    return NotAdmitted(
        f"{hint} (HTTP {fault.status} from {without_query(url)}: {error})", status=fault.status
    )


def _hint_about(token: FileToken, status: int) -> str:
    if status == 403:
        return f"the token in {token.file} is for another space, or this one does not admit its holder"
    start = f"the gateway does not know the token in {token.file}"
    if token.is_unread:
        return f"{start}, which is newer than what it has read: `moot reload` makes it read that"
    return f"{start}: check the file, or have another token made"


def without_query(url: str) -> str:
    """An address without its query, which may hold secrets."""
    return url.partition("?")[0]


def _without_tls(url: str) -> str:
    scheme = urlsplit(url).scheme
    return f"{_SECURE.get(scheme, scheme)}{without_query(url)[len(scheme) :]}"

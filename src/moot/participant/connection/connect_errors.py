"""Errors of connecting, as messages that say what to do."""

from __future__ import annotations

import socket
import ssl
from typing import Final
from urllib.parse import urlsplit

import orjson

from moot.errors import NotAdmitted, Unreachable
from moot.net.outbound import explain_untrusted
from moot.net.websocket_client import UpgradeRefused

_HINTS: Final = {
    401: "the gateway does not know this token: check the token, or have another one made",
    403: "the token is for another space, or this one does not admit its holder",
    404: "check the name of the space and the address",
    421: "the gateway does not know itself by this host name (gateway.allowed_hosts)",
}
_SECURE: Final = {"https": "http", "wss": "ws"}


def explain_unreachable(url: str, fault: Unreachable) -> Unreachable:
    """An Unreachable that says what to try."""
    cause, address = fault.__cause__, _without_query(url)
    start = f"{address} cannot be reached"
    match cause:
        case ConnectionRefusedError():
            message = f"{start}: connection refused. No gateway runs there: start one with `moot up` or"
            message += " `moot serve`, or check the address"
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
            message = f"{address} is not a gateway. Check the address and the port ({fault})"
        case _:
            message = f"{fault}"
    explained = Unreachable(message)
    explained.__cause__ = cause
    return explained


def explain_not_admitted(url: str, fault: UpgradeRefused) -> NotAdmitted:
    """A NotAdmitted for what a gateway answered in place of a WebSocket."""
    try:
        error = orjson.loads(fault.body)["error"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        # A gateway answers errors in JSON.
        message = f"{_without_query(url)} is not a gateway (HTTP {fault.status})"
        return NotAdmitted(f"{message}. Check the address and the port", status=fault.status)
    hint = _HINTS.get(fault.status, "the gateway did not let us in")
    return NotAdmitted(
        f"{hint} (HTTP {fault.status} from {_without_query(url)}: {error})", status=fault.status
    )


def _without_query(url: str) -> str:
    """An address without its query, which may hold secrets."""
    return url.partition("?")[0]


def _without_tls(url: str) -> str:
    scheme = urlsplit(url).scheme
    return f"{_SECURE.get(scheme, scheme)}{_without_query(url)[len(scheme) :]}"

"""Why there is no way into a space, in words that say what to do about it."""

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


def unreachable(url: str, fault: Unreachable) -> Unreachable:
    """The fault of a dial to a gateway, with what to try."""
    cause, shown = fault.__cause__, _shown(url)
    start = f"{shown} cannot be reached"
    match cause:
        case ConnectionRefusedError():
            words = f"{start}: connection refused. No gateway runs there: start one with `moot up` or"
            words += " `moot serve`, or check the address"
        case socket.gaierror():
            words = f"{start}: no machine of that name is known ({cause.strerror}). Check the address"
        case ssl.SSLCertVerificationError():
            words = f"{start}: {explain_untrusted(cause)}"
        case ssl.SSLError():
            words = f"{start}: what answers there speaks no TLS. Try {_plain(url)}, without the s"
        case TimeoutError():
            words = f"{start}: no answer in time. Check the address: something else may listen there"
        case OSError() if cause.strerror:
            words = f"{start}: {cause.strerror}. Check the address"
        case None:
            words = f"what answers at {shown} is no gateway. Check the address and the port ({fault})"
        case _:
            words = f"{fault}"
    said = Unreachable(words)
    said.__cause__ = cause
    return said


def not_admitted(url: str, fault: UpgradeRefused) -> NotAdmitted:
    """What a gateway answered in place of a WebSocket."""
    try:
        said = orjson.loads(fault.body)["error"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        # A gateway says in JSON what is wrong.
        words = f"what answers at {_shown(url)} is no gateway (HTTP {fault.status})"
        return NotAdmitted(f"{words}. Check the address and the port", status=fault.status)
    hint = _HINTS.get(fault.status, "the gateway did not let us in")
    return NotAdmitted(f"{hint} (HTTP {fault.status} from {_shown(url)}: {said})", status=fault.status)


def _shown(url: str) -> str:
    """An address without its query, which may hold what is nobody's business."""
    return url.partition("?")[0]


def _plain(url: str) -> str:
    scheme = urlsplit(url).scheme
    return f"{_SECURE.get(scheme, scheme)}{_shown(url)[len(scheme) :]}"

"""What every connection that we open needs: how a socket is made, and what a bad certificate means."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Awaitable, Callable

# Connects to a host and a port in place of the system, for whoever checks the address first.
OpenSocket = Callable[[str, int], Awaitable[socket.socket]]


def explain_untrusted(fault: ssl.SSLCertVerificationError) -> str:
    """Why a certificate was not accepted, and what to do if it is right."""
    return (
        f"its certificate is not trusted ({fault.verify_message}). If a private authority issued it, name"
        " that authority's certificate: SSL_CERT_FILE=ca.pem"
    )

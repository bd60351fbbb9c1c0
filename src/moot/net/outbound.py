"""What every connection that we open needs: how a socket is made, and how certificates are checked."""

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


def verification_for(url: str) -> ssl.SSLContext | bool:
    """For `verify` of an HTTP client that talks to this address.

    Without TLS there is no certificate to check, and no authorities are read: that takes 50 ms. Should TLS be
    met all the same, nobody is trusted.
    """
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if url.lower().startswith("http:") else True

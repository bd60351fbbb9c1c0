"""What an HTTP client checks certificates with."""

from __future__ import annotations

import ssl


def verification_for(url: str) -> ssl.SSLContext | bool:
    """For `verify` of an HTTP client that talks to this address.

    Without TLS there is no certificate to check, and no authorities are read: that takes 50 ms. Should TLS be
    met all the same, nobody is trusted.
    """
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if url.lower().startswith("http:") else True

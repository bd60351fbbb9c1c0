"""A link that signs somebody in to the console, once: asked of the gateway, and shown."""

from __future__ import annotations

import io

from moot.errors import Refused, UsageError
from moot.operations.operation import SignInLink


def ask_for_link(gateway: str, token: str, *, elsewhere: bool) -> SignInLink:
    """Raises MootError. With `elsewhere`, for a browser on another machine as far as the gateway has one."""
    from moot.cli.client.gateway_request import request_gateway

    page, answer = request_gateway(
        "POST",
        gateway,
        "sign-in-links",
        token,
        body=lambda page: {"page": page, "elsewhere": elsewhere},
    )
    if answer.status_code == 404:
        raise UsageError(f"the gateway at {page} has no one-time links; sign in with your token instead")
    body = answer.json() if answer.headers.get("content-type", "").startswith("application/json") else {}
    if answer.status_code != 201:
        raise Refused(str(body.get("message") or f"the gateway replied with HTTP {answer.status_code}"))
    return SignInLink(
        address=str(body["address"]),
        minutes=round(float(body["valid_seconds"]) / 60),
        # A gateway of 0.1 does not say.
        only_here=not body.get("other_machines", True),
    )


def qr_text(address: str) -> str:
    import segno

    drawn = io.StringIO()
    segno.make_qr(address, error="m").terminal(drawn, compact=True)
    return drawn.getvalue().rstrip("\n")

"""Signing in at a provider of OpenID Connect from a terminal: the device flow (RFC 8628), and renewing.

The gateway says which provider and client; everything about the provider comes from the provider itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2

from moot.cli.client.gateway_request import request_bounded
from moot.config.gateway_config import is_loopback
from moot.config.secrets.sign_in_store import SignInStore, StoredSignIn
from moot.errors import Refused, Unauthorized, Unreachable, UsageError
from moot.net.connect_errors import explain_failed_request

_PROVIDER: Final = "a provider of OpenID Connect"
_DEVICE_GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"
_TIMEOUT_SECONDS: Final = 10.0
# RFC 8628, 3.5: by so much the wait grows when the provider says slow_down.
_SLOWER_SECONDS: Final = 5.0
_INTERVAL_SECONDS: Final = 5.0
_MAX_WAIT_SECONDS: Final = 1_800.0
# A token with less than this left is renewed before it is used.
_RENEW_SECONDS: Final = 30.0


def normal_url(given: str) -> str:
    """A gateway's address as sign-ins are kept under; of a cluster several, separated by commas."""
    return ",".join(_normal_url(each) for url in given.split(",") if (each := url.strip()))


def _normal_url(url: str) -> str:
    for named, plain in (("ws://", "http://"), ("wss://", "https://")):
        if url.startswith(named):
            url = plain + url.removeprefix(named)
    return url.rstrip("/")


def check_gateways(gateway: str) -> None:
    """Raises UsageError unless each of these addresses is safe to send a token to."""
    for each in gateway.split(","):
        check_secure(each, "the gateway")


def check_secure(url: str, what: str) -> None:
    try:
        parts = urlsplit(url)
        is_safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
    except ValueError:
        is_safe = False
    if not is_safe:
        raise UsageError(f"{what} is not at an https:// address: whoever is on the path would get the token")


def find_provider(gateway: str) -> Mapping[str, Any]:
    """What the gateway, or the first that answers, says about where people sign in.

    Raises UsageError and Unreachable.
    """
    *others, last = gateway.split(",")
    for each in others:
        with suppress(UsageError, Unreachable):
            return _provider_of(each)
    return _provider_of(last)


def _provider_of(gateway: str) -> Mapping[str, Any]:
    found = _get(f"{gateway}/oidc", "a gateway").get("providers")
    if not isinstance(found, list) or not found:
        raise UsageError(f"{gateway} has no provider to sign in at: use a token (--token-file FILE)")
    provider = found[0]
    if not isinstance(provider, dict) or not all(
        isinstance(provider.get(k), str) for k in ("issuer", "client_id")
    ):
        raise UsageError(f"{gateway} does not say properly where to sign in")
    return provider


def has_device_flow(provider: Mapping[str, Any]) -> bool:
    """Whether the provider gives codes that are confirmed on another device; raises UsageError."""
    return isinstance(_discover(provider["issuer"]).get("device_authorization_endpoint"), str)


def _discover(issuer: str) -> Mapping[str, Any]:
    check_secure(issuer, "the provider")
    document = _get(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
    if document.get("issuer") != issuer:
        raise UsageError(f"{issuer} calls itself otherwise: this is not the provider that the gateway names")
    return document


def sign_in(provider: Mapping[str, Any], show: Callable[[str, str], None]) -> StoredSignIn:
    """Sign in; `show` is told the address to open and the code to type. Raises Refused and UsageError."""
    issuer, client_id = provider["issuer"], provider["client_id"]
    document = _discover(issuer)
    endpoint, token_endpoint = document.get("device_authorization_endpoint"), document.get("token_endpoint")
    if not isinstance(endpoint, str) or not isinstance(token_endpoint, str):
        raise UsageError(f"{issuer} offers no sign-in for terminals (device flow): use a token")
    check_secure(endpoint, "the provider")
    check_secure(token_endpoint, "the provider")
    resource = provider.get("resource")
    asked = {"client_id": client_id, "scope": " ".join(provider.get("scopes", ["openid"]))}
    if isinstance(resource, str):
        asked["resource"] = resource
    status, grant = _post(endpoint, asked)
    address = grant.get("verification_uri_complete") or grant.get("verification_uri")
    if status != 200 or not isinstance(grant.get("device_code"), str) or not isinstance(address, str):
        raise Refused(f"{issuer} does not let this client sign in: {_why(grant)}")
    check_secure(address, "the page to sign in at")
    show(address, str(grant.get("user_code", "")))
    return _wait_for_tokens(issuer, client_id, token_endpoint, grant, resource)


def _wait_for_tokens(
    issuer: str, client_id: str, token_endpoint: str, grant: Mapping[str, Any], resource: Any
) -> StoredSignIn:
    interval = float(grant.get("interval", _INTERVAL_SECONDS))
    deadline = time.monotonic() + min(float(grant.get("expires_in", 600)), _MAX_WAIT_SECONDS)
    form = {"grant_type": _DEVICE_GRANT, "device_code": grant["device_code"], "client_id": client_id}
    while time.monotonic() < deadline:
        pause(interval)
        status, answer = _post(token_endpoint, form)
        if status == 200:
            return _stored(answer, issuer, client_id, token_endpoint, resource)
        match answer.get("error"):
            case "authorization_pending":
                continue
            case "slow_down":
                interval += _SLOWER_SECONDS
            case "access_denied":
                raise Refused("the sign-in was declined")
            case "expired_token":
                break
            case _:
                raise Refused(f"{issuer} refused the sign-in: {_why(answer)}")
    raise Refused("nobody signed in within the time that the provider gave: try again")


def pause(seconds: float) -> None:
    time.sleep(seconds)


def current_token(store: SignInStore, gateway: str) -> str | None:
    """The access token for a gateway, renewed if it ends soon; None if nobody has signed in there.

    Raises Unauthorized when it cannot be renewed.
    """
    gateway = store.key_of(gateway)
    if store.load(gateway) is None:
        return None
    check_gateways(gateway)
    with store.lock():
        # Again: another command may have renewed it meanwhile.
        kept = store.load(gateway)
        if kept is None:
            return None
        if kept.expires_at - time.time() > _RENEW_SECONDS:
            return kept.access_token
        renewed = _renew(kept)
        if renewed is None:
            if kept.expires_at > time.time():
                return kept.access_token
            raise Unauthorized(f"your sign-in has ended: run `moot login {gateway}`")
        store.save(gateway, renewed)
        return renewed.access_token


def _renew(kept: StoredSignIn) -> StoredSignIn | None:
    if kept.refresh_token is None:
        return None
    form = {"grant_type": "refresh_token", "refresh_token": kept.refresh_token, "client_id": kept.client_id}
    if kept.resource is not None:
        form["resource"] = kept.resource
    status, answer = _post(kept.token_endpoint, form)
    if status != 200:
        return None
    return _stored({"refresh_token": kept.refresh_token} | dict(answer), kept.issuer, kept.client_id,
                   kept.token_endpoint, kept.resource)  # fmt: skip


def _stored(
    answer: Mapping[str, Any], issuer: str, client_id: str, token_endpoint: str, resource: Any
) -> StoredSignIn:
    token, refresh = answer.get("access_token"), answer.get("refresh_token")
    if not isinstance(token, str) or not token:
        raise Refused(f"{issuer} gave no access token")
    seconds = answer.get("expires_in")
    return StoredSignIn(
        issuer=issuer,
        client_id=client_id,
        token_endpoint=token_endpoint,
        access_token=token,
        expires_at=time.time() + (float(seconds) if isinstance(seconds, int | float) else 60.0),
        refresh_token=refresh if isinstance(refresh, str) else None,
        resource=resource if isinstance(resource, str) else None,
    )


def _get(url: str, what: str = _PROVIDER) -> Mapping[str, Any]:
    try:
        answer = request_bounded("GET", url, seconds=_TIMEOUT_SECONDS, headers={"Accept": "application/json"})
        body = answer.json()
    except (httpx2.HTTPError, ValueError) as fault:
        raise explain_failed_request(url, fault, what=what) from None
    if answer.status_code != 200 or not isinstance(body, dict):
        why = f": {_why(body)}" if isinstance(body, dict) else ""
        raise UsageError(f"{url} answered {answer.status_code}{why}")
    return body


def _post(url: str, form: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]]:
    try:
        answer = request_bounded("POST", url, seconds=_TIMEOUT_SECONDS, data=dict(form))
        body = answer.json()
    except (httpx2.HTTPError, ValueError) as fault:
        raise explain_failed_request(url, fault, what=_PROVIDER) from None
    return answer.status_code, body if isinstance(body, dict) else {}


def _why(answer: Mapping[str, Any]) -> str:
    return str(
        answer.get("error_description") or answer.get("message") or answer.get("error") or "no reason given"
    )[:200]

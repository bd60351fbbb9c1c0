"""The Host and Origin of a request (D-84)."""

from __future__ import annotations

from ipaddress import ip_address

from moot.gateway.access import AccessDenied


class HostOriginPolicy:
    """D-84: exact lists of Host and Origin, so that no other page and no other name reaches us."""

    def __init__(self, hosts: frozenset[str], origins: frozenset[str]) -> None:
        self._hosts = hosts
        self.origins = origins

    def check(self, host: str | None, origin: str | None, *, by_address: bool = False) -> AccessDenied | None:
        """Why this request is not answered. `by_address` also takes an IP address, as monitoring sends it.

        Nobody's page can be behind one: rebinding takes a name of the attacker's.
        """
        is_known = host is not None and (host.lower() in self._hosts or (by_address and _is_address(host)))
        if not is_known:
            return AccessDenied(421, "unknown Host: add it to gateway.allowed_hosts if it is yours")
        if origin is not None and origin.lower().rstrip("/") not in self.origins:
            return AccessDenied(403, "unknown Origin: add it to gateway.allowed_origins if it is yours")
        return None


def _is_address(host: str) -> bool:
    """Whether a Host is an IP address, with or without a port."""
    name, colon, port = host.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit():
        name = host
    is_bracketed = name.startswith("[") and name.endswith("]")
    try:
        return ip_address(name[1:-1] if is_bracketed else name).version == (6 if is_bracketed else 4)
    except ValueError:
        return False

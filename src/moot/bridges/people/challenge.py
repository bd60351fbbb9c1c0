"""What a client is told about signing in: metadata (RFC 9728) and `WWW-Authenticate` (RFC 6750)."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit, urlunsplit

from moot.bridges.people.people_settings import ResourceDescription
from moot.mcp.downstream.http_access import HttpAccessDenied
from moot.mcp.eras import JsonObject

_WELL_KNOWN = "/.well-known/oauth-protected-resource"


def resource_path(description: ResourceDescription) -> str:
    """The path at which MCP is served."""
    return description.path or urlsplit(description.resource).path or "/"


def metadata_paths(description: ResourceDescription) -> set[str]:
    """Where the metadata is: RFC 9728, 3.1, before the path of the resource, as it is known to clients.

    Behind a proxy that takes a prefix away, also where that one sends what is below the prefix.
    """
    if not description.authorization_servers:
        return set()
    return {_WELL_KNOWN + path for path in (urlsplit(description.resource).path, description.path) if path}


def metadata(description: ResourceDescription) -> JsonObject:
    made: JsonObject = {
        "resource": description.resource,
        # As texts, and exactly: clients compare the issuer letter by letter.
        "authorization_servers": list(description.authorization_servers),
        "bearer_methods_supported": ["header"],
        "resource_name": f"Moot space {description.space}",
    }
    if description.scopes:
        made["scopes_supported"] = list(description.scopes)
    return made


def challenge(
    description: ResourceDescription, scopes: Sequence[str], *, error: str = "", why: str = ""
) -> tuple[bytes, bytes]:
    """The header that says where and for what to sign in; RFC 6750: no error where no token was sent."""
    said = {"error": error, "error_description": _quotable(why), "scope": " ".join(scopes)}
    if description.authorization_servers:
        said = {"resource_metadata": _metadata_address(description)} | said
    words = ", ".join(f'{name}="{value}"' for name, value in said.items() if value)
    return b"www-authenticate", f"Bearer {words}".strip().encode("ascii", "replace")


def _metadata_address(description: ResourceDescription) -> str:
    """Below the prefix of a proxy, where there is one: a rule for that prefix lets it through."""
    parts = urlsplit(description.resource)
    path = description.path or parts.path
    address = parts.path.removesuffix(path) + _WELL_KNOWN + path
    return urlunsplit((parts.scheme, parts.netloc, address, "", ""))


def insufficient_scope(description: ResourceDescription, scopes: Sequence[str]) -> HttpAccessDenied:
    """A token that is good, for less. All that is needed is told at once."""
    why = f"this needs the scope {' '.join(scopes)}: sign in again for it"
    return HttpAccessDenied(403, why, challenge(description, scopes, error="insufficient_scope", why=why))


def _quotable(text: str) -> str:
    """RFC 6750, 3: what may stand in an error_description."""
    return "".join(c if " " <= c <= "~" and c not in '"\\' else "'" for c in text)[:256]

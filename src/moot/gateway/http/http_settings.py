"""Which HTTP endpoints a gateway has, and their limits."""

from __future__ import annotations

import msgspec


class HttpSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which endpoints there are, and how large a body may be."""

    inject: bool = True
    poll: bool = True
    admin: bool = True
    metrics: bool = True
    console: bool = True
    max_body_bytes: int = 2 << 20
    max_content_bytes: int = 32 << 20
    max_space_content_bytes: int = 1 << 30
    max_minted_token_seconds: float = 86_400
    history_pages_per_second: float = 10
    sign_in_links_per_minute: float = 10
    # Where people open the console, if somebody else serves it to them.
    public_url: str | None = None
    # Addresses of all gateways of a cluster, as browsers reach them, and the origins of the pages there.
    gateways: tuple[str, ...] = ()
    page_origins: frozenset[str] = frozenset()

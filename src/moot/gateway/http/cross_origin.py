"""What lets the console's page of one gateway of a cluster ask the other gateways over HTTP.

A browser shows a page the answers of its own origin alone, unless the other side names the page's origin
(CORS). Only in a cluster with `addresses`, and only for the origins that are answered at all (D-84): pages of
its gateways, and those of `allowed_origins`. No cookies: the page sends its token in a header.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

# A browser asks again after ten minutes whether it may.
_KEEP_SECONDS: Final = 600


def cross_origin(origins: Collection[str]) -> list[Middleware]:
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=sorted(origins),
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["Authorization", "Content-Type"],
            expose_headers=["Retry-After"],
            allow_credentials=False,
            max_age=_KEEP_SECONDS,
        )
    ]

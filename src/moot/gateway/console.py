"""The console: static files of the package, served at `/` and `/console/…` (D-84).

The files are read once, when the gateway starts; a request can name one of these and nothing else, so there
is no path to escape from. The page may load scripts and styles of this gateway alone, nothing inline.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

# Types that a page is made of; a file of another kind is not served.
_TYPES: Final[Mapping[str, str]] = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
}
PAGE: Final = "index.html"
# Folders of ours are two deep: console/views/approvals.js. A loop of links would be deeper.
_MOST_DEEP: Final = 4


class StaticFile(msgspec.Struct, frozen=True):
    """One file as it is sent."""

    content: bytes
    media_type: str
    etag: str


class Console:
    """Every file that the console consists of."""

    def __init__(self, folder: Traversable | None = None) -> None:
        root = files("moot").joinpath("console") if folder is None else folder
        self.files: Mapping[str, StaticFile] = dict(_read(root))

    def answer(self, request: Request, path: str) -> Response | None:
        """The file at this path; 304 for a browser that has it already; None when there is none."""
        found = self.files.get(path)
        if found is None:
            return None
        headers = _headers(request.headers.get("host", "")) | {"ETag": found.etag}
        if found.etag in _tags(request.headers.get("if-none-match", "")):
            return Response(status_code=304, headers=headers)
        return Response(found.content, media_type=found.media_type, headers=headers)


def _read(folder: Traversable, before: str = "", deep: int = 0) -> Iterator[tuple[str, StaticFile]]:
    if deep > _MOST_DEEP or not folder.is_dir():
        return
    for entry in sorted(folder.iterdir(), key=lambda each: each.name):
        if entry.is_dir():
            yield from _read(entry, f"{before}{entry.name}/", deep + 1)
        elif (kind := _TYPES.get(_suffix(entry.name))) is not None:
            content = entry.read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            yield before + entry.name, StaticFile(content, kind, etag)


def _suffix(name: str) -> str:
    return "." + name.rpartition(".")[2] if not name.startswith(".") else ""


def _tags(header: str) -> set[str]:
    return {tag.strip().removeprefix("W/") for tag in header.split(",")}


def _headers(host: str) -> dict[str, str]:
    """`host` is one of the hosts that this gateway answers to, so it is safe to repeat (D-84)."""
    # 'self' means the page's own scheme in some browsers; the socket of the same host is named beside it.
    sockets = f" ws://{host} wss://{host}" if host else ""
    policy = (
        "default-src 'none'; script-src 'self'; style-src 'self'; "
        f"connect-src 'self'{sockets}; img-src 'self' data:; manifest-src 'self'; base-uri 'none'; "
        "frame-ancestors 'none'; form-action 'none'"
    )
    return {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
        # Asked for again each time, answered 304: an upgraded gateway never meets an old script.
        "Cache-Control": "no-cache",
    }

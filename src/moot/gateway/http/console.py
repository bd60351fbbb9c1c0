"""The console: static files of the package, served at `/` and `/console/…` (D-84).

The files are read once, when the gateway starts; a request can name one of these and nothing else, so there
is no path to escape from. The page may load scripts and styles of this gateway alone, nothing inline.

The page itself is asked for each time. It names all other files below a version, the hash of all of them, so
that a browser keeps these for good and an upgraded gateway never meets an old script. There the modules are
joined: `app.js` has all that the sign-in form needs, `views.js` the rest. `start.js` asks again for what is
lost on the way (decision 0147).

Service worker and manifest are beside the page, so that they are for all below it, also behind a proxy with
a path prefix. The service worker is told the version and the files that it keeps for when there is no
connection.
"""

from __future__ import annotations

import copy
import gzip
import hashlib
import html
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from moot.gateway.http.joined_modules import JOINED_AS, join_rest, join_start

# Types that a page is made of; a file of another kind is not served.
_TYPES: Final[Mapping[str, str]] = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".woff2": "font/woff2",
    ".webmanifest": "application/manifest+json",
}
PAGE: Final = "index.html"
WORKER: Final = "service-worker.js"
MANIFEST: Final = "manifest.webmanifest"
# Folders of ours are two deep: console/views/approvals/approvals.js. A loop of links would be deeper.
_MOST_DEEP: Final = 4


# Smaller ones fit into a packet as they are.
_LEAST_COMPRESSED_BYTES: Final = 1_024
_YEAR_SECONDS: Final = 31_536_000
_VERSION_CHARS: Final = 16
# Not a module: it watches how the modules load.
_WATCH: Final = "start.js"
# Below the version: the module that starts the page with all that it needs, and all other modules.
_START: Final = "app.js"
_REST: Final = "views.js"


class StaticFile(msgspec.Struct, frozen=True):
    """One file as it is sent."""

    content: bytes
    media_type: str
    etag: str


class Console:
    """Every file that the console consists of."""

    def __init__(self, folder: Traversable | None = None) -> None:
        root = files("moot").joinpath("console") if folder is None else folder
        found = dict(_read(root))
        self.version = _version_of(found)
        if PAGE in found:
            found[PAGE] = _name_version(found[PAGE], self.version)
        if WORKER in found:
            found[WORKER] = _name_files(found[WORKER], self.version, found)
        self.files: Mapping[str, StaticFile] = found
        # Joined and compressed when they are first asked for.
        self._joined: dict[str, StaticFile] = {}
        self._compressed: dict[str, bytes] = {}

    def with_gateways(self, addresses: Sequence[str]) -> Console:
        """The same, with a page that knows these gateways of its cluster."""
        if not addresses or PAGE not in self.files:
            return self
        one = copy.copy(self)
        one.files = {**self.files, PAGE: _name_gateways(self.files[PAGE], addresses)}
        one._compressed = {}
        return one

    def answer(self, request: Request, path: str, connect_to: Sequence[str] = ()) -> Response | None:
        """The file at this path; 304 for a browser that has it already; None when there is none.

        `connect_to` are the origins that the page may ask beside this gateway: those of providers, and of
        the other gateways of a cluster.
        """
        version, _, rest = path.partition("/")
        is_versioned = version == self.version
        name = rest if is_versioned else path
        is_joined = is_versioned and name in (_START, _REST) and _START in self.files
        found = self._join(name) if is_joined else self.files.get(name)
        if found is None:
            return None
        # Another policy is another page: a browser would keep the policy that it knows.
        etag = _etag(" ".join((found.etag, *connect_to)).encode()) if connect_to else found.etag
        headers = _headers(request.headers.get("host", ""), connect_to)
        headers |= {"ETag": etag, "Vary": "Accept-Encoding"}
        if request.url.scheme == "https":
            # Whoever was here once is not led to plain HTTP.
            headers["Strict-Transport-Security"] = f"max-age={_YEAR_SECONDS}"
        if is_versioned:
            headers["Cache-Control"] = f"public, max-age={_YEAR_SECONDS}, immutable"
        if etag in _tags(request.headers.get("if-none-match", "")):
            return Response(status_code=304, headers=headers)
        content = found.content
        if len(content) >= _LEAST_COMPRESSED_BYTES and _takes_gzip(request) and _is_text(found):
            content = self._compress(f"{version}/{name}" if is_joined else name, content)
            headers["Content-Encoding"] = "gzip"
            # Other bytes under the same tag: the tag says that they mean the same.
            headers["ETag"] = f"W/{etag}"
        return Response(content, media_type=found.media_type, headers=headers)

    def _join(self, name: str) -> StaticFile:
        if name not in self._joined:
            modules = {
                each: file.content.decode()
                for each, file in self.files.items()
                if each.endswith(".js") and each not in (WORKER, _WATCH)
            }
            joined = join_start(_START, modules, _REST) if name == _START else join_rest(_START, modules)
            content = joined.encode()
            self._joined[name] = StaticFile(content, _TYPES[".js"], _etag(content))
        return self._joined[name]

    def _compress(self, name: str, content: bytes) -> bytes:
        kept = self._compressed.get(name)
        if kept is None:
            kept = self._compressed[name] = gzip.compress(content, mtime=0)
        return kept


def _is_text(file: StaticFile) -> bool:
    return file.media_type not in (_TYPES[".png"], _TYPES[".woff2"])


@cache
def installed_console() -> Console:
    """The console that was installed with Moot, read once for the process."""
    return Console()


def _takes_gzip(request: Request) -> bool:
    for offer in request.headers.get("accept-encoding", "").lower().split(","):
        coding, _, weight = offer.partition(";")
        if coding.strip() == "gzip":
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def _version_of(found: Mapping[str, StaticFile]) -> str:
    tags = "".join(f"{name}{file.etag}" for name, file in sorted(found.items()))
    return hashlib.sha256(f"{JOINED_AS}{tags}".encode()).hexdigest()[:_VERSION_CHARS]


def _name_version(page: StaticFile, version: str) -> StaticFile:
    content = page.content.decode().replace('"console/', f'"console/{version}/').encode()
    return StaticFile(content, page.media_type, _etag(content))


def _name_gateways(page: StaticFile, addresses: Sequence[str]) -> StaticFile:
    named = " ".join(f"{address.rstrip('/')}/" for address in addresses)
    meta = f'<meta name="moot-gateways" content="{html.escape(named)}">\n</head>'
    content = page.content.decode().replace("</head>", meta).encode()
    return StaticFile(content, page.media_type, _etag(content))


def _name_files(worker: StaticFile, version: str, found: Mapping[str, StaticFile]) -> StaticFile:
    """The service worker with what it keeps, so that another version is another service worker."""
    single = {name for name in found if name.endswith(".js")}
    files = sorted((found.keys() - single - {PAGE, MANIFEST}) | {_START, _REST, _WATCH})
    facts = msgspec.json.encode({"version": version, "files": files})
    content = b"self.moot = " + facts + b";\n" + worker.content
    return StaticFile(content, worker.media_type, _etag(content))


def _read(folder: Traversable, before: str = "", deep: int = 0) -> Iterator[tuple[str, StaticFile]]:
    if deep > _MOST_DEEP or not folder.is_dir():
        return
    for entry in sorted(folder.iterdir(), key=lambda each: each.name):
        if entry.is_dir():
            yield from _read(entry, f"{before}{entry.name}/", deep + 1)
        elif (kind := _TYPES.get(_suffix(entry.name))) is not None:
            content = entry.read_bytes()
            yield before + entry.name, StaticFile(content, kind, _etag(content))


def _etag(content: bytes) -> str:
    return f'"{hashlib.sha256(content).hexdigest()[:32]}"'


def _suffix(name: str) -> str:
    return "." + name.rpartition(".")[2] if not name.startswith(".") else ""


def _tags(header: str) -> set[str]:
    return {tag.strip().removeprefix("W/") for tag in header.split(",")}


def _headers(host: str, connect_to: Sequence[str]) -> dict[str, str]:
    """`host` is one of the hosts that this gateway answers to, so it is safe to repeat (D-84)."""
    others = "".join(f" {origin}" for origin in connect_to)
    # 'self' means the page's own scheme in some browsers; the socket of the same host is named beside it.
    sockets = f" ws://{host} wss://{host}" if host else ""
    policy = (
        "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; "
        f"connect-src 'self'{sockets}{others}; img-src 'self' data:; manifest-src 'self'; base-uri 'none'; "
        "frame-ancestors 'none'; form-action 'none'"
    )
    return {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
        # Asked for again each time, answered 304.
        "Cache-Control": "no-cache",
    }

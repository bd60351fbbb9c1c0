"""The console's files as the gateway sends them (D-84)."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from moot.gateway.http.console import Console
from tests.console.gateway_and_members import Loop, Running, spaces
from tests.waiting import HANG_SECONDS

# Statements at the start of a line, and types in comments.
_IMPORTS = re.compile(r"""(?:^(?:import|\}).*?\bfrom\s|^import\s|\bimport\()["']([^"']+)["']""", re.M)
ROOT = Path(__file__).parents[2] / "src/moot/console"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, loop: Loop) -> Iterator[Running]:
    running = Running(tmp_path_factory.mktemp("served"), loop, spaces())
    yield running
    running.stop()


@pytest.fixture
def http(served: Running) -> httpx.Client:
    return httpx.Client(base_url=served.url, trust_env=False, timeout=HANG_SECONDS)


def test_the_page_may_load_nothing_from_elsewhere_and_nothing_inline(http: httpx.Client) -> None:
    with http:
        page = http.get("/")
    parts = page.headers["content-security-policy"].split(";")
    policy = dict(part.strip().partition(" ")[::2] for part in parts)
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == "'self'"
    assert policy["base-uri"] == policy["frame-ancestors"] == policy["form-action"] == "'none'"
    assert "unsafe" not in page.headers["content-security-policy"]
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["referrer-policy"] == "no-referrer"
    assert page.headers["cache-control"] == "no-cache"
    assert "<script>" not in page.text
    assert "style=" not in page.text
    assert "http://" not in page.text
    assert "https://" not in page.text


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/console/app.js", "text/javascript; charset=utf-8"),
        ("/console/core/state/state.js", "text/javascript; charset=utf-8"),
        ("/console/css/tokens.css", "text/css; charset=utf-8"),
        ("/console/icon.svg", "image/svg+xml"),
        ("/console/icon-192.png", "image/png"),
        ("/service-worker.js", "text/javascript; charset=utf-8"),
        ("/manifest.webmanifest", "application/manifest+json"),
    ],
)
def test_files_have_their_type_and_are_not_sent_twice(http: httpx.Client, path: str, kind: str) -> None:
    with http:
        first = http.get(path)
        again = http.get(path, headers={"If-None-Match": f'"other", {first.headers["etag"]}'})
    assert (first.status_code, first.headers["content-type"]) == (200, kind)
    assert (again.status_code, again.content) == (304, b"")
    assert "content-security-policy" in again.headers


@pytest.mark.parametrize(
    "path",
    [
        "/console/../http.py",
        "/console/..%2f..%2fgateway/http.py",
        "/console/%2e%2e/gateway/http.py",
        "/console//etc/passwd",
        "/console/README.md",
        "/console/core",
        "/console/core/state/",
        "/console/",
        "/console/core/state/state.js%00.css",
        "/console/core\\state.js",
    ],
)
def test_only_files_of_the_console_are_sent(served: Running, path: str) -> None:
    """The path goes out as it is written here: no client tidies it up first."""
    asked = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nConnection: close\r\n\r\n"
    with (
        socket.create_connection(("127.0.0.1", served.port), timeout=HANG_SECONDS) as raw,
        raw.makefile("rb") as answered,
    ):
        raw.sendall(asked.encode())
        answer = answered.read()
    assert answer.startswith(b"HTTP/1.1 404")
    assert b"import" not in answer


def test_a_page_of_another_host_gets_nothing(http: httpx.Client) -> None:
    """DNS rebinding: the name in Host has to be ours."""
    with http:
        assert http.get("/", headers={"Host": "evil.example"}).status_code == 421
        assert http.get("/console/app.js", headers={"Origin": "http://evil.example"}).status_code == 403


def test_where_it_is_turned_off_there_is_the_status_page(tmp_path: Path, loop: Loop) -> None:
    running = Running(tmp_path, loop, spaces(), http={"console": False})
    try:
        with httpx.Client(base_url=running.url, trust_env=False, timeout=HANG_SECONDS) as http:
            assert "This gateway is running" in http.get("/").text
            assert http.get("/status").text == http.get("/").text
            assert 'name="color-scheme" content="light dark"' in http.get("/").text
            assert http.get("/console/app.js").status_code == 404
            assert "/console/{path}" not in http.get("/openapi.json").json()["paths"]
    finally:
        running.stop()


def test_every_script_and_style_of_the_package_is_served_and_nothing_else() -> None:
    of_ours = {
        str(path.relative_to(ROOT))
        for path in ROOT.rglob("*")
        if path.suffix in {".html", ".js", ".css", ".svg", ".png", ".webmanifest", ".woff2"}
    }
    assert set(Console().files) == of_ours


def test_no_script_makes_markup_or_code_of_text() -> None:
    """What is not there cannot be misused: no HTML from strings, no eval, no inline style or handler."""
    makers = ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "createContextualFragment"]
    forbidden = [*makers, "eval(", "new Function", "DOMParser", 'setAttribute("style"']
    found = [
        f"{path.relative_to(ROOT)}: {word}"
        for path in ROOT.rglob("*.js")
        for word in forbidden
        if word in path.read_text("utf-8")
    ]
    assert found == []


def test_every_import_leads_to_a_file_of_ours() -> None:
    """Nothing is fetched from another server, and nothing is missing."""
    for path in ROOT.rglob("*.js"):
        for target in _IMPORTS.findall(path.read_text("utf-8")):
            assert target.startswith("."), f"{path}: {target}"
            assert (path.parent / target).resolve().is_file(), f"{path}: {target}"


def test_files_are_compressed_for_whoever_takes_that(http: httpx.Client) -> None:
    with http:
        plain = http.get("/console/core/page/dom.js", headers={"Accept-Encoding": "identity"})
        refused = http.get("/console/core/page/dom.js", headers={"Accept-Encoding": "gzip;q=0, br"})
        packed = http.get("/console/core/page/dom.js", headers={"Accept-Encoding": "br, gzip"})
        again = http.get(
            "/console/core/page/dom.js",
            headers={"Accept-Encoding": "gzip", "If-None-Match": packed.headers["etag"]},
        )
    assert "content-encoding" not in plain.headers
    assert "content-encoding" not in refused.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) * 2 < int(plain.headers["content-length"])
    assert packed.text == plain.text
    assert packed.headers["vary"] == "Accept-Encoding"
    assert again.status_code == 304


def test_the_page_names_a_version_whose_files_are_kept_for_good(http: httpx.Client) -> None:
    """An upgraded gateway has another version, so that nothing old is ever met."""
    with http:
        page = http.get("/").text
        version = re.findall(r'src="console/([0-9a-f]{16})/app.js"', page)[0]
        file = http.get(f"/console/{version}/core/page/dom.js")
        old = http.get("/console/0123456789abcdef/core/page/dom.js")
    assert 'href="console/css' not in page
    assert file.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert old.status_code == 404


def test_the_sign_in_form_needs_little(http: httpx.Client) -> None:
    """All of it is named in the page; on a line of 1.6 Mbit/s it takes less than half a second."""
    with http:
        page = http.get("/")
        needed = set(re.findall(r'(?:href|src)="(console/[^"]+)"', page.text))
        files = [http.get(f"/{name}") for name in sorted(needed)]
    assert {file.status_code for file in files} == {200}
    assert {name.rpartition("/")[2] for name in needed if ".js" in name} == {
        "app.js",
        "start.js",
        "start.js?again",
    }
    assert sum(int(file.headers["content-length"]) for file in [page, *files]) < 75_000


def test_no_style_is_left_to_a_single_view_so_a_dialog_looks_alike_wherever_it_is_opened() -> None:
    """Decision 0310."""
    page, manifest = (ROOT / "index.html").read_text("utf-8"), (ROOT / "views/manifest.js").read_text("utf-8")
    of_page = re.findall(r'href="console/css/([a-z]+)\.css"', page)
    of_views = re.findall(r'"([a-z]+)"', manifest.partition("const STYLES = [")[2].partition("]")[0])
    assert sorted([*of_page, *of_views]) == sorted(path.stem for path in ROOT.glob("css/*.css"))

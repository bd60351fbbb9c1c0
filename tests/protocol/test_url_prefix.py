"""A grant for a part of the web allows that part and nothing that is only written like it."""

from __future__ import annotations

import random
from urllib.parse import urlsplit

from moot.protocol.patterns import read_capability
from moot.protocol.patterns.url_prefix import (
    is_address,
    url_prefix_of,
    url_prefix_pattern,
    url_prefixes,
)

DOCS = "https://a.example/docs/"
SITE = "https://a.example/"

INSIDE = [
    "https://a.example/docs/",
    "https://a.example/docs/page.html",
    "https://a.example/docs/sub/page?q=../x&y=%2e%2e#part",
    "https://a.example/docs/a%20b/%E4%BD%A0%C3%BC",
    "https://a.example/docs/.well-known/x.",
    "https://a.example/docs/@user:1;v=2",
]
OUTSIDE = [
    "https://a.example.evil.net/docs/x",
    "https://a.example@evil.net/docs/x",
    "https://a.example:443@evil.net/docs/x",
    "https://a.example:8443/docs/x",
    "https://a.exampleevil.net/docs/",
    "http://a.example/docs/x",
    "https://b.a.example/docs/x",
    "https://aXexample/docs/x",
    "https://A.example/docs/x",
    "https://a.example\\@evil.net/docs/x",
    "https://a.example\\.evil.net/docs/x",
    "https://a.example/docs",
    "https://a.example/docsevil/x",
    "https://a.example/docs/../admin",
    "https://a.example/docs/..",
    "https://a.example/docs/..;/admin",
    "https://a.example/docs/%2e%2e/admin",
    "https://a.example/docs/.%2E/admin",
    "https://a.example/docs/%252e%252e/admin",
    "https://a.example/docs/..%2fadmin",
    "https://a.example/docs/..%5cadmin",
    "https://a.example/docs/%c0%ae%c0%ae/admin",
    "https://a.example/docs\\..\\admin",
    "https://a.example/docs/..\\admin",
    "https://a.example/docs/.\t./admin",
    "https://a.example/docs/.\n./admin",
    "https://a.example/docs/x\nhttps://evil.net/",
    "https://evil.net/\nhttps://a.example/docs/x",
    "https://a.example/docs/x\n",
    " https://a.example/docs/x",
    "https://a.example/docs/x?a b",
    "https://a.example/docs/x?a\\b",
    "https://a.example/docs/\u2025/admin",
    "https://a.example/docs/\uff0e\uff0e/admin",
    "https://a.example/docs/%00",
    "https://a.example/docs/%",
    "https://evil.net/https://a.example/docs/x",
    "https://evil.net/?https://a.example/docs/x",
    "//a.example/docs/x",
    "",
]


def allowed(pattern: str, text: str) -> bool:
    """As the gateway matches it."""
    capability = read_capability({"kind": "mcp/request", "payload": {"url": pattern}})
    return capability.matches("mcp/request", {"url": text}, ["web"])


def test_a_folder_of_a_site_allows_what_is_in_it_and_nothing_that_looks_so() -> None:
    pattern = url_prefix_pattern(DOCS)
    assert pattern is not None
    assert [each for each in INSIDE if not allowed(pattern, each)] == []
    assert [each for each in OUTSIDE if allowed(pattern, each)] == []


def test_a_whole_site_is_its_host_and_its_port() -> None:
    pattern = url_prefix_pattern(SITE)
    assert pattern is not None
    for inside in (
        "https://a.example",
        "https://a.example/",
        "https://a.example?q=1",
        "https://a.example/x#y",
    ):
        assert allowed(pattern, inside), inside
    hosts = {urlsplit(each).netloc for each in OUTSIDE if allowed(pattern, each)}
    assert hosts == {"a.example"}
    for outside in (
        "https://a.example.",
        "https://a.example.evil.net",
        "https://a.example:80/",
        "https://a.example\\x",
    ):
        assert not allowed(pattern, outside), outside


def test_no_address_made_of_awkward_signs_leaves_its_folder() -> None:
    """What two readers of addresses make of it: what matches stays below the folder for both of them."""
    draw = random.Random(20261116)
    signs = ["a", "/", ".", "..", "%2e", "%2f", "%5c", "\\", "@", ":", "?", "#", "\t", "%25", ";", "docs/"]
    pattern = url_prefix_pattern(DOCS)
    assert pattern is not None
    matched = 0
    for _ in range(4_000):
        text = "https://a.example" + "".join(draw.choice(signs) for _ in range(draw.randint(0, 7)))
        for address in (text, text.replace("a.example", "a.example/docs/", 1)):
            if not allowed(pattern, address):
                continue
            matched += 1
            parts = urlsplit(address)
            assert (parts.scheme, parts.netloc) == ("https", "a.example")
            segments = parts.path.split("/")
            assert segments[1] == "docs"
            assert ".." not in segments
            assert "%2e" not in parts.path.lower()
    assert matched > 300


def test_only_what_is_written_plainly_has_a_prefix() -> None:
    assert url_prefixes("https://a.example/docs/x?q=1") == (DOCS, SITE)
    assert url_prefixes("https://a.example") == url_prefixes("https://a.example/x") == (SITE,)
    assert url_prefixes("http://[::1]:8080/a/b") == ("http://[::1]:8080/a/", "http://[::1]:8080/")
    for odd in OUTSIDE[10:30]:
        assert all(url_prefix_pattern(each) for each in url_prefixes(odd))
    for odd in ("https://me:pw@a.example/x", "https://A.example/x", "file:///etc/x", "https:///x", "notes/a"):
        assert url_prefixes(odd) == ()
    for none in (
        "https://a.example",
        "https://a.ex*mple/",
        "https://a.example/docs",
        "a.example/",
        "https://a.example/../",
    ):
        assert url_prefix_pattern(none) is None
    assert is_address("HTTPS:\\\\A.example")
    assert not is_address("notes/a")


def test_a_pattern_says_which_prefix_it_is() -> None:
    for prefix in (DOCS, SITE, "http://[::1]:8080/a+(b)/", "repo://name/$x*/"):
        pattern = url_prefix_pattern(prefix)
        assert pattern is not None
        assert url_prefix_of(pattern) == prefix
        assert url_prefix_of(pattern.replace("$/", "x$/")) is None
        assert url_prefix_of(f"/^.*{pattern[2:]}") is None
    assert url_prefix_of("/^read_/") is None

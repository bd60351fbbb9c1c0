"""From xp://host to a key: over real TLS, a real name server, and all that strangers can put in the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import dns.rcode
import pytest

from moot.errors import MootError, Unreachable, UsageError
from moot.net.address_check import ForbiddenAddress, is_public
from moot.xprotocol.endpoint.discovery import (
    Disagreement,
    DiscoveredEndpoint,
    EndpointName,
    discover,
    parse_endpoint,
)
from moot.xprotocol.endpoint.dns_records import (
    BadRecord,
    EndpointRecord,
    dns_lookup,
    find_record,
    read_record,
    record_text,
)
from moot.xprotocol.endpoint.document_fetch import BadDocument, FetchPolicy
from moot.xprotocol.endpoint.known_endpoints import KeyChanged, KnownEndpoints
from moot.xprotocol.translation.announcement import discovery_document
from tests.rows import for_each_row
from tests.waiting import HANG_SECONDS
from tests.xprotocol.endpoint.web_and_dns_servers import (
    HOST,
    Pages,
    certified,
    head,
    leading,
    name_server,
    no_lookup,
    serving_pages,
)
from tests.xprotocol.people import ALICE, BOB

WELL_KNOWN = "/.well-known/xprotocol-endpoint"


def document(port: int = 0, **more: Any) -> dict[str, Any]:
    return {
        **discovery_document(
            endpoint="wss://relay.example/xp",
            public_key=BOB.key.text,
            encryption_key=BOB.enc_key.text,
            schema_url=f"https://{HOST}:{port}/xp/schemas",
            mcp_sources=["filesystem"],
        ),
        **more,
    }


@asynccontextmanager
async def host(folder: Path) -> AsyncIterator[tuple[Pages, FetchPolicy, str]]:
    """A host with its page over TLS; its name leads to loopback, which is allowed here."""
    tls, trusted = certified(folder)
    async with serving_pages(tls) as pages:
        reach = FetchPolicy(
            allow_private=True, ca_file=trusted, resolve=leading("127.0.0.1"), timeout_seconds=HANG_SECONDS
        )
        pages.at[WELL_KNOWN] = document(pages.port)
        yield pages, reach, f"xp://{HOST}:{pages.port}"


@pytest.mark.requirement("XP-2.2-12", "XP-3.1-34")
async def test_a_host_leads_to_its_key_its_relay_and_its_catalogue(tmp_path: Path) -> None:
    """XP 7.3, without a DNS record."""
    async with host(tmp_path) as (pages, reach, name):
        found = await discover(name, reach, no_lookup)
        assert found == DiscoveredEndpoint(
            name=EndpointName(HOST, pages.port),
            key=BOB.key.text,
            encryption_key=BOB.enc_key.text,
            relays=("wss://relay.example/xp",),
            schema_url=f"https://{HOST}:{pages.port}/xp/schemas",
        )
        assert (pages.asked, pages.hosts) == ([WELL_KNOWN], [f"{HOST}:{pages.port}"])


@pytest.mark.requirement("XP-2.2-12")
async def test_a_dns_record_that_agrees_adds_its_relay_and_one_that_does_not_ends_it(tmp_path: Path) -> None:
    """xp1, Discovery: a real name server says it; the keys must agree."""
    async with host(tmp_path) as (_pages, reach, name), name_server() as names:
        lookup = dns_lookup(["127.0.0.1"], port=names.port, seconds=HANG_SECONDS)
        record = EndpointRecord(BOB.key.text, BOB.enc_key.text, "wss://first.example")
        names.texts[f"_xprotocol.{HOST}"] = ["v=spf1 -all", record_text(record)]
        found = await discover(name, reach, lookup)
        assert found.relays == ("wss://first.example", "wss://relay.example/xp")
        assert found.has_record
        assert names.asked == [f"_xprotocol.{HOST}."]
        for wrong in (
            replace(record, key=ALICE.key.text),
            replace(record, encryption_key=ALICE.enc_key.text),
            # DNS is not proven: it may not move the one place that is.
            replace(record, well_known="https://elsewhere.example/x"),
        ):
            names.texts[f"_xprotocol.{HOST}"] = [record_text(wrong)]
            with pytest.raises(Disagreement):
                await discover(name, reach, lookup)


async def test_a_name_server_that_knows_nothing_or_fails_leaves_the_document_alone(tmp_path: Path) -> None:
    async with host(tmp_path) as (_pages, reach, name), name_server() as names:
        lookup = dns_lookup(["127.0.0.1"], port=names.port, seconds=HANG_SECONDS)
        found = await discover(name, reach, lookup)
        assert (found.key, found.has_record, found.notes) == (BOB.key.text, False, ())
        # A server that fails is asked again until time is up.
        lookup = dns_lookup(["127.0.0.1"], port=names.port, seconds=1)
        names.rcode = dns.rcode.SERVFAIL
        found = await discover(name, reach, lookup)
        assert found.key == BOB.key.text
        assert "no name server answered" in found.notes[0]


@pytest.mark.parametrize(
    "texts",
    [
        [f"v=xp1; k={BOB.key.text}", f"v=xp1; k={BOB.key.text}"],
        ["v=xp1"],
        ["v=xp1; k=ed25519:short"],
        [f"v=xp1; k={BOB.key.text}; k={ALICE.key.text}"],
        [f"v=xp1; k={BOB.key.text}; e=x25519:no"],
        [f"v=xp1; k={BOB.key.text}; r=http://relay.example"],
        [f"v=xp1; k={BOB.key.text}; r"],
        [f"v=xp1; k={BOB.key.text}; z={'x' * 2_000}"],
        [f"v=xp1; k={BOB.key.text}; r=wss://\x1b[2J.example"],
    ],
)
async def test_two_records_and_broken_ones_are_refused(texts: list[str]) -> None:
    async def lookup(_name: str) -> Sequence[str]:
        return texts

    with pytest.raises(BadRecord):
        await find_record(HOST, lookup)


def test_a_record_is_read_as_it_is_written() -> None:
    record = EndpointRecord(BOB.key.text, BOB.enc_key.text, "wss://r.example", "https://weather.example/w")
    assert read_record(record_text(record)) == record
    # As people write them.
    assert read_record(f" v=xp1 ;k={BOB.key.text};; unknown=1 ") == EndpointRecord(BOB.key.text)


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ({"version": "xp2"}, "version"),
        ({"public_key": "ed25519:" + "A" * 43}, "small order"),
        ({"public_key": None}, "public_key is missing"),
        ({"public_key": ["x"]}, "public_key is missing"),
        ({"encryption_key": "x25519:short"}, "x25519"),
        ({"endpoint": "https://relay.example"}, "no relay's address"),
        ({"endpoint": "wss://user:secret@relay.example"}, "no user or password"),
        ({"endpoint": 7}, "endpoint is missing"),
    ],
)
async def test_a_document_that_cannot_be_trusted_is_refused(tmp_path: Path, page: Any, words: str) -> None:
    async with host(tmp_path) as (pages, reach, name):
        pages.at[WELL_KNOWN] = document(pages.port, **page)
        with pytest.raises(BadDocument, match=words):
            await discover(name, reach, no_lookup)


HUGE = b'{"version": "' + b"x" * 100_000 + b'"}'


@pytest.mark.parametrize(
    ("page", "kind", "words"),
    [
        (head(302, "Location: https://elsewhere.example/", length=0), BadDocument, "not followed"),
        (head(302, "Location: http://169.254.169.254/", length=0), BadDocument, "not followed"),
        (head(500, length=0), BadDocument, "HTTP 500"),
        (head(200, length=len(HUGE)) + HUGE, BadDocument, "larger than 65536"),
        (head(200, "Transfer-Encoding: chunked") + b"1\r\n[\r\n" * 70_000, BadDocument, "larger"),
        (head(200, length=9) + b"not json!", BadDocument, "not JSON"),
        (head(200, length=14) + b'{"a":1,"a":2} ', BadDocument, "not JSON"),
        (head(200, length=2) + b"[]", BadDocument, "not a JSON object"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000, BadDocument, "larger"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", Unreachable, "no answer"),
        (head(200, length=500) + b"{", Unreachable, "hung up"),
        (b"", Unreachable, "hung up"),
        (head(200, length=500) + b"<hangs>", Unreachable, "within 1 s"),
    ],
)
async def test_what_a_host_may_send_instead_ends_with_a_reason_and_in_time(
    tmp_path: Path, page: bytes, kind: type[MootError], words: str
) -> None:
    async with host(tmp_path) as (pages, reach, name):
        pages.at[WELL_KNOWN] = page
        seconds = 1.0 if words.startswith("within") else HANG_SECONDS
        with pytest.raises(kind, match=words):
            await discover(name, replace(reach, timeout_seconds=seconds), no_lookup)


async def test_a_certificate_of_somebody_else_is_none(tmp_path: Path) -> None:
    tls, _ = certified(tmp_path, "other.example")
    _, trusted = certified(tmp_path)
    async with serving_pages(tls) as pages:
        pages.at[WELL_KNOWN] = document()
        for authority in (trusted, tmp_path / "other.example.pem", None):
            reach = FetchPolicy(
                allow_private=True,
                ca_file=authority,
                resolve=leading("127.0.0.1"),
                timeout_seconds=HANG_SECONDS,
            )
            with pytest.raises(Unreachable, match="certificate is not trusted"):
                await discover(f"xp://{HOST}:{pages.port}", reach, no_lookup)
        assert pages.asked == []


PRIVATE = [
    "127.0.0.1",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",  # noqa: S104
    "224.0.0.1",
    "255.255.255.255",
    "::1",
    "::",
    "fe80::1%eth0",
    "fe80::1",
    "fc00::1",
    "ff02::1",
    "::ffff:127.0.0.1",
    "::127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1",
    "2002:7f00:1::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "localhost",
    "",
]


def test_only_addresses_of_the_open_internet_are_public_however_they_are_written() -> None:
    assert [address for address in PRIVATE if is_public(address)] == []
    public = ["8.8.8.8", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "93.184.216.34"]
    assert [address for address in public if not is_public(address)] == []


@pytest.mark.parametrize("addresses", [["127.0.0.1"], ["8.8.8.8", "10.0.0.1"], ["::ffff:169.254.169.254"]])
async def test_a_name_that_leads_into_a_private_network_is_not_followed(addresses: list[str]) -> None:
    """One private address among public ones refuses all of them."""
    async with serving_pages() as pages:
        reach = FetchPolicy(resolve=leading(*addresses), timeout_seconds=HANG_SECONDS)
        with pytest.raises(ForbiddenAddress, match="allow_private_addresses"):
            await discover(f"xp://{HOST}:{pages.port}", reach, no_lookup)
        assert pages.asked == []


async def test_literal_addresses_and_localhost_are_no_way_around(tmp_path: Path) -> None:
    async with serving_pages() as pages:
        for name in ("127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "127.1"):
            with pytest.raises((ForbiddenAddress, Unreachable, UsageError)):
                await discover(
                    f"xp://{name}:{pages.port}", FetchPolicy(timeout_seconds=HANG_SECONDS), no_lookup
                )
        assert pages.asked == []
        # Where it is allowed, this machine itself needs no certificate; nobody else goes without.
        pages.at[WELL_KNOWN] = document(endpoint="ws://127.0.0.1:8765")
        allowed = FetchPolicy(timeout_seconds=HANG_SECONDS, allow_private=True)
        found = await discover(f"xp://127.0.0.1:{pages.port}", allowed, no_lookup)
        assert (found.key, found.relays) == (BOB.key.text, ("ws://127.0.0.1:8765",))
        # Neither side of a handshake that only one of them speaks ever says so: time ends it.
        soon = replace(allowed, resolve=leading("127.0.0.1"), timeout_seconds=0.5)
        with pytest.raises(Unreachable):
            await discover(f"xp://{HOST}:{pages.port}", soon, no_lookup)


async def test_a_name_is_resolved_once_and_connected_to_where_it_led(tmp_path: Path) -> None:
    """No rebinding: the second answer of a name server would be another one, and is never asked for."""
    answers = iter([["127.0.0.1"], ["127.0.0.2"], ["127.0.0.3"]])
    asked: list[str] = []

    async def resolve(name: str, _port: int) -> Sequence[str]:
        asked.append(name)
        return next(answers)

    async with host(tmp_path) as (pages, reach, name):
        await discover(name, replace(reach, resolve=resolve), no_lookup)
        assert (asked, pages.asked) == ([HOST], [WELL_KNOWN])


async def test_a_catalogue_elsewhere_is_not_fetched_and_a_plain_relay_not_used(tmp_path: Path) -> None:
    async with host(tmp_path) as (pages, reach, name):
        for url in (
            "https://elsewhere.example/schemas",
            "http://169.254.169.254/latest",
            "file:///etc/passwd",
            f"https://user@{HOST}/x",
            f"https://{HOST}/\r\nX: y",
            "x" * 5_000,
        ):
            pages.at[WELL_KNOWN] = document(pages.port, schema_url=url)
            found = await discover(name, reach, no_lookup)
            assert found.schema_url is None
            assert "schema_url is not used" in found.notes[0]
        pages.at[WELL_KNOWN] = document(pages.port, endpoint="ws://relay.example")
        public = replace(reach, allow_private=False, resolve=leading("93.184.216.34"))
        with pytest.raises(MootError):
            await discover(name, replace(public, timeout_seconds=0.5), no_lookup)


@for_each_row(
    "text",
    [
        "https://weather.example",
        "xp://",
        "xp:///x",
        "xp://a/b",
        "xp://a?b",
        "xp://a#b",
        "xp://user@a",
        "xp://a:0",
        "xp://a:99999",
        "xp://a b",
        "xp://-a.example",
        "xp://a..b",
        "xp://" + "a." * 200 + "b",
        "xp://a\\@b",
        "xp://[::1",
        "xp://[v1.a:b]",
        "xp://[fe80::1%25eth0]",
        "xp://[127.0.0.1]",
        "weather.example",
    ],
)
def test_what_is_no_endpoint_is_said_so(text: str) -> None:
    with pytest.raises(UsageError, match=r"xp://weather\.example\.com"):
        parse_endpoint(text)


def test_names_have_one_spelling() -> None:
    assert str(parse_endpoint("xp://Weather.EXAMPLE./")) == "xp://weather.example"
    assert str(parse_endpoint("xp://bücher.example:8443")) == "xp://xn--bcher-kva.example:8443"
    assert str(parse_endpoint("xp://[::1]:8766")) == "xp://[::1]:8766"


async def test_a_host_that_takes_the_connection_and_says_nothing_is_left_in_time() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(Unreachable, match=r"within 0\.5 s"):
        await discover(
            f"xp://127.0.0.1:{port}", FetchPolicy(timeout_seconds=0.5, allow_private=True), no_lookup
        )
    server.close()


def test_the_key_of_an_endpoint_is_kept_and_another_one_needs_the_operator(tmp_path: Path) -> None:
    """xp1: pinned on first use."""
    file = tmp_path / "state" / "known.json"
    known = KnownEndpoints(file)
    assert known.check("xp://weather.example", BOB.key.text)
    assert not known.check("xp://weather.example", BOB.key.text)
    again = KnownEndpoints(file)
    with pytest.raises(KeyChanged, match=r"Nothing is sent to it.*remove its entry from .*known.json"):
        again.check("xp://weather.example", ALICE.key.text)
    assert not again.check("xp://weather.example", BOB.key.text)
    for broken in ("[]", "{}", '{"endpoints": {"xp://a": {"key": "no"}}}', "\0"):
        file.write_text(broken)
        with pytest.raises(UsageError, match=r"known\.json: is not a file"):
            KnownEndpoints(file)

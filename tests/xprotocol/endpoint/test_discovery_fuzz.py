"""Whatever strangers write into records, names and catalogs: a value, or the one error for it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from moot.errors import SchemaViolation, UsageError
from moot.net.address_check import is_public
from moot.xprotocol.contracts.contracts import ContractRefused
from moot.xprotocol.endpoint.catalog_pages import read_list_query, read_page
from moot.xprotocol.endpoint.discovery import parse_endpoint
from moot.xprotocol.endpoint.dns_records import BadRecord, read_record, record_text
from moot.xprotocol.endpoint.document_fetch import BadDocument, FetchPolicy, check_url
from tests.xprotocol.people import BOB

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
MEMBERS = st.sampled_from(["kind", "payload", "version", "description", "subscription", "source", "response"])
CONTRACTS = st.dictionaries(MEMBERS, JSON, max_size=5)


@given(st.text(max_size=80) | st.text(max_size=60).map(lambda text: f"v=xp1; k={BOB.key.text}; {text}"))
def test_a_record_is_read_or_refused(text: str) -> None:
    with suppress(BadRecord):
        found = read_record(text)
        assert read_record(record_text(found)) == found


@given(st.text(max_size=60).map(lambda text: f"xp://{text}") | st.text(max_size=60))
def test_a_name_is_an_endpoint_or_refused_and_never_a_way_elsewhere(text: str) -> None:
    with suppress(UsageError):
        name = parse_endpoint(text)
        # What was understood is understood the same way again, and holds nothing but a host and a port.
        assert parse_endpoint(str(name)) == name
        assert not set(name.host) & set("/@?#\\ %\r\n")


@given(st.text(max_size=60).map(lambda text: f"https://weather.example{text}") | st.text(max_size=60))
def test_an_address_is_one_line_of_ascii_with_a_host_or_refused(url: str) -> None:
    with suppress(BadDocument):
        parts = check_url(url, FetchPolicy(allow_private=True))
        assert parts.hostname
        assert parts.scheme in ("https", "http")
        assert url.isascii()
        assert not set(url) & set(" \r\n\t")


@given(st.text(max_size=40) | st.ip_addresses().map(str))
def test_an_address_is_public_or_not_and_nothing_else_happens(text: str) -> None:
    assert is_public(text) in (True, False)


@given(
    JSON | st.builds(lambda each: {"contracts": each, "digest": "x"}, st.lists(CONTRACTS | JSON, max_size=4))
)
def test_a_page_is_read_or_refused(payload: Any) -> None:
    with suppress(ContractRefused):
        page = read_page(payload)
        assert len(page.contracts) + len(page.invalid) == len(payload["contracts"])


@given(JSON)
def test_a_question_for_the_catalogue_is_read_or_refused(payload: Any) -> None:
    with suppress(SchemaViolation):
        assert read_list_query(payload) is not None

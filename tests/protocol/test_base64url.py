"""One spelling for every byte string."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moot.protocol import base64url
from tests.rows import for_each_row

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


@given(st.binary(max_size=200))
def test_what_is_encoded_decodes_and_is_what_the_standard_library_writes(raw: bytes) -> None:
    text = base64url.encode(raw)
    assert text == base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
    assert base64url.decode(text) == raw


@for_each_row(
    "text",
    [
        "YQ==",  # padding
        "YQ=",
        "YQ\n",
        " YQ",
        "YQ ",
        "Y\u00e9",
        "Y",  # no bytes have this length
        "YWFhY",
        "YR",  # bits that stand for nothing
        "YWF",
        "-_8/",  # the other alphabet
        "+A",
        "Y!Q",  # junk that Python's decoder skips
        "Y=Q",
        "=",
        "\ud800",
        "ＹＱ",  # digits and letters of other scripts
    ],
)
def test_every_other_spelling_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        base64url.decode(text)


def test_of_all_last_characters_only_those_without_stray_bits_are_taken() -> None:
    taken = [last for last in ALPHABET if _decodes("A" * 21 + last)]
    assert taken == ["A", "Q", "g", "w"]
    taken = [last for last in ALPHABET if _decodes("A" * 42 + last)]
    assert taken == list(ALPHABET[::4])


@given(st.text(alphabet=ALPHABET + "+/= \n", max_size=12))
def test_a_text_that_decodes_is_the_one_that_its_bytes_encode_to(text: str) -> None:
    if _decodes(text):
        assert base64url.encode(base64url.decode(text)) == text


def _decodes(text: str) -> bool:
    try:
        base64url.decode(text)
    except ValueError:
        return False
    return True

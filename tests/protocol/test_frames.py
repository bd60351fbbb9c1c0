"""Stream data frames (MEW 3.10.3, D-35)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moot.errors import InvalidEnvelope, UsageError
from moot.protocol.frames import Frame, is_frame, read_frame, write_frame
from tests.examples import examples
from tests.rows import for_each_row

MiB = 1 << 20


@pytest.mark.requirement("MEW-3.10.3-1", "MEW-3.10.3-2")
def test_a_frame_is_a_stream_id_and_whatever_follows() -> None:
    frame = read_frame(b"#stream-1#\x00\xff#more#", binary=True, max_bytes=MiB)
    assert frame == Frame("stream-1", b"#stream-1#\x00\xff#more#", True)
    assert frame.data == b"\x00\xff#more#"


def test_a_frame_may_be_empty() -> None:
    assert read_frame(b"#s#", binary=False, max_bytes=MiB).data == b""


def test_no_envelope_is_a_frame_and_no_frame_an_envelope() -> None:
    assert is_frame(b"#s#data")
    assert is_frame(b"#")
    assert not is_frame(b'{"kind":"chat"}')
    assert not is_frame(b" #s#")
    assert not is_frame(b"")


@pytest.mark.requirement("MEW-3.10.3-3")
@settings(max_examples=examples(25), derandomize=True, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["stream-1", "stream-22", "ü"]), st.binary())))
def test_interleaved_frames_come_apart_as_they_went_in(pieces: list[tuple[str, bytes]]) -> None:
    frames = [write_frame(stream, data, binary=True) for stream, data in pieces]
    again = [read_frame(frame.raw, binary=True, max_bytes=MiB) for frame in frames]
    assert again == frames
    assert [(frame.stream_id, frame.data) for frame in again] == pieces


@pytest.mark.parametrize("binary", [True, False])
def test_text_stays_text_and_binary_stays_binary(binary: bool) -> None:
    """D-35."""
    assert read_frame(b"#s#hi", binary=binary, max_bytes=MiB).binary is binary
    assert write_frame("s", b"hi", binary=binary).binary is binary


@for_each_row(
    ("raw", "binary", "says"),
    [
        (b"", True, "starts with #stream_id#"),
        (b"s#data", True, "starts with #stream_id#"),
        (b"#", True, "starts with #stream_id#"),
        (b"#stream-1", True, "starts with #stream_id#"),
        (b"##data", True, "non-empty and printable"),
        (b"#a\nb#data", True, "non-empty and printable"),
        (b"#" + b"s" * 257 + b"#", True, "at most 256 bytes"),
        (b"#\xff#data", True, "stream_id must be valid UTF-8"),
        (b"#s#\xff", False, "a text frame must be valid UTF-8"),
        (b"#s#" + b"x" * 100, True, "103 bytes is larger than max_bytes 100"),
    ],
)
def test_what_is_no_frame_is_refused_by_name(raw: bytes, binary: bool, says: str) -> None:
    with pytest.raises(InvalidEnvelope) as caught:
        read_frame(raw, binary=binary, max_bytes=100 if len(raw) == 103 else MiB)
    assert says in caught.value.message


def test_the_longest_stream_id_passes() -> None:
    assert read_frame(b"#" + b"s" * 256 + b"#x", binary=True, max_bytes=MiB).data == b"x"


@settings(max_examples=examples(50), derandomize=True, deadline=None)
@given(st.binary(max_size=30).map(lambda data: b"#" + data), st.booleans())
def test_any_bytes_are_a_frame_or_an_invalid_envelope(raw: bytes, binary: bool) -> None:
    try:
        frame = read_frame(raw, binary=binary, max_bytes=MiB)
    except InvalidEnvelope:
        return
    assert frame.raw is raw
    assert f"#{frame.stream_id}#".encode() + frame.data == raw


@pytest.mark.parametrize(
    ("stream_id", "data", "binary"),
    [("", b"", True), ("a#b", b"", True), ("a\n", b"", True), ("\ud800", b"", True), ("s", b"\xff", False)],
)
def test_a_frame_that_nobody_could_read_is_not_written(stream_id: str, data: bytes, binary: bool) -> None:
    with pytest.raises(UsageError):
        write_frame(stream_id, data, binary=binary)

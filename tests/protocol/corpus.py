"""Messages for the decoder's tests: how good ones are built, and bad ones with the words of their refusal."""

from __future__ import annotations

import json
from typing import NamedTuple

from moot.errors import InvalidEnvelope, InvalidJson, MalformedEnvelope, ProtocolMismatch
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import DialectName, Envelope
from moot.protocol.operation import Json

TS = "2026-01-31T12:00:00Z"


def text(dialect: DialectName, kind: Json, /, **members: Json) -> bytes:
    """A complete envelope as compact JSON; `from_` stands for `from`, and `...` leaves a member out."""
    fields: dict[str, Json] = {
        "protocol": DIALECTS[dialect].protocol,
        "id": "e1",
        "ts": TS,
        "from": "alice",
        "kind": kind,
    }
    fields |= {name.removesuffix("_"): value for name, value in members.items()}
    present = {name: value for name, value in fields.items() if value is not ...}
    return json.dumps(present, ensure_ascii=False, separators=(",", ":")).encode()


def read(dialect: DialectName, kind: Json, /, **members: Json) -> Envelope:
    """The envelope that such a text is read as."""
    return DIALECTS[dialect].decode(text(dialect, kind, **members))


def call(name: str = "read_file", **more: Json) -> dict[str, Json]:
    """A tool call as the body of a request."""
    return {
        "jsonrpc": "2.0",
        "id": 42,
        "method": "tools/call",
        "params": {"name": name, "arguments": {}},
        **more,
    }


def proposed(name: str = "read_file") -> dict[str, Json]:
    """A tool call as the body of a proposal."""
    return {"method": "tools/call", "params": {"name": name, "arguments": {"path": "/a"}}}


class Refusal(NamedTuple):
    """A message that is no envelope, and how its sender is told."""

    name: str
    raw: bytes
    error: type[MalformedEnvelope]
    says: str


def _chat(**members: Json) -> bytes:
    # With a payload, or the decoder's quick way would not come into it.
    return text("mew", "chat", **({"payload": {"text": "hi"}} | members))


def _in_payload(value: bytes) -> bytes:
    return _chat(payload=...)[:-1] + b',"payload":' + value + b"}"


# D-83: what two readers could read differently, or one of them not at all.
NOT_JSON: tuple[Refusal, ...] = (
    Refusal("nothing", b"", InvalidJson, "empty message"),
    Refusal("only spaces", b" \r\n\t", InvalidJson, "empty message"),
    Refusal("a byte order mark", b"\xef\xbb\xbf" + _chat(), InvalidJson, "byte order mark"),
    Refusal("a cut-off object", _chat()[:-1], InvalidJson, "not JSON"),
    Refusal("two objects", _chat() + _chat(), InvalidJson, "not JSON: Extra data"),
    Refusal("a trailing comma", _chat()[:-1] + b",}", InvalidJson, "not JSON"),
    Refusal("a comment", b"/* hi */" + _chat(), InvalidJson, "not JSON"),
    Refusal("single quotes", b"{'kind':'chat'}", InvalidJson, "not JSON"),
    Refusal("a bare word", b"chat", InvalidJson, "not JSON"),
    Refusal("a control character in a string", _in_payload(b'{"text":"a\nb"}'), InvalidJson, "not JSON"),
    Refusal("an unknown escape", _in_payload(rb'{"text":"\x41"}'), InvalidJson, "not JSON"),
    Refusal("a number with a leading zero", _in_payload(b'{"n":01}'), InvalidJson, "not JSON"),
    Refusal("a number with a plus", _in_payload(b'{"n":+1}'), InvalidJson, "not JSON"),
    Refusal("a hexadecimal number", _in_payload(b'{"n":0x10}'), InvalidJson, "not JSON"),
    Refusal("UTF-16", _chat().decode().encode("utf-16-le"), InvalidJson, "not JSON"),
    Refusal("Latin-1", _in_payload(b'{"text":"caf\xe9"}'), InvalidJson, "not valid UTF-8 at byte"),
    Refusal("an overlong slash", _in_payload(b'{"text":"\xc0\xaf"}'), InvalidJson, "not valid UTF-8"),
    Refusal("a surrogate as bytes", _in_payload(b'{"text":"\xed\xa0\x80"}'), InvalidJson, "not valid UTF-8"),
    Refusal("a lone surrogate", _in_payload(rb'{"text":"\ud800"}'), InvalidJson, "lone surrogate"),
    Refusal("surrogates in reverse", _in_payload(rb'{"text":"\udc00\ud800"}'), InvalidJson, "lone surrogate"),
    Refusal("a lone surrogate as a key", _in_payload(rb'{"\uDBFF":1}'), InvalidJson, "lone surrogate"),
    Refusal("NaN", _in_payload(b'{"n":NaN}'), InvalidJson, "NaN is not JSON"),
    Refusal("Infinity", _in_payload(b'{"n":Infinity}'), InvalidJson, "Infinity is not JSON"),
    Refusal("minus Infinity", _in_payload(b'{"n":-Infinity}'), InvalidJson, "-Infinity is not JSON"),
    Refusal("a number beyond all doubles", _in_payload(b'{"n":1e999}'), InvalidJson, "number too large"),
    Refusal("an endless integer", _in_payload(b'{"n":' + b"9" * 4301 + b"}"), InvalidJson, "4300 digits"),
    Refusal(
        "a kind given twice", _chat()[:-1] + b',"kind":"mcp/request"}', InvalidJson, "duplicate key 'kind'"
    ),
    Refusal("a sender given twice", _chat()[:-1] + b',"from":"bob"}', InvalidJson, "duplicate key 'from'"),
    Refusal(
        "the same key escaped", _chat()[:-1] + rb',"\u006bind":"x"}', InvalidJson, "duplicate key 'kind'"
    ),
    Refusal(
        "a duplicate inside", _in_payload(b'{"a":{"name":1,"name":2}}'), InvalidJson, "duplicate key 'name'"
    ),
    Refusal("a duplicate in a list", _in_payload(b'{"a":[{"b":1,"b":1}]}'), InvalidJson, "duplicate key 'b'"),
    Refusal("lists too deep", _in_payload(b'{"a":' + b"[" * 63 + b"]" * 63 + b"}"), InvalidJson, "64 levels"),
    Refusal("objects too deep", _in_payload(b'{"a":' * 64 + b"1" + b"}" * 64), InvalidJson, "64 levels"),
    Refusal(
        "too deep elsewhere",
        _chat(x=...)[:-1] + b',"x":' + b"[" * 64 + b"]" * 64 + b"}",
        InvalidJson,
        "64 levels",
    ),
    Refusal(
        "a thousand levels",
        _in_payload(b'{"a":' + b"[" * 1100 + b"]" * 1100 + b"}"),
        InvalidJson,
        "64 levels",
    ),
    Refusal("enough levels to end a stack", b"[" * 500_000, InvalidJson, "50000 objects"),
    Refusal("levels enough for two stacks", b"[" * 50_000, InvalidJson, "64 levels"),
    Refusal("deep and never closed", b'{"a":' * 150_000, InvalidJson, "50000 objects"),
)

# MEW 3: JSON, but not an envelope.
NOT_AN_ENVELOPE: tuple[Refusal, ...] = (
    Refusal("a list", b"[" + _chat() + b"]", InvalidEnvelope, "an envelope is one JSON object"),
    Refusal("a string", b'"chat"', InvalidEnvelope, "an envelope is one JSON object"),
    Refusal("null", b"null", InvalidEnvelope, "an envelope is one JSON object"),
    Refusal("a number", b"42", InvalidEnvelope, "an envelope is one JSON object"),
    Refusal("an empty object", b"{}", InvalidEnvelope, "kind is missing"),
    Refusal("a join frame", b'{"type":"join","space":"s","token":"t"}', InvalidEnvelope, "kind is missing"),
    Refusal(
        "more than a megabyte", _chat(payload={"text": "x" * (1 << 20)}), InvalidEnvelope, "max_bytes 1048576"
    ),
    Refusal("protocol null", _chat(protocol=None), InvalidEnvelope, "protocol must be a string"),
    Refusal("protocol a number", _chat(protocol=0.4), InvalidEnvelope, "protocol must be a string"),
    Refusal("protocol empty", _chat(protocol=""), ProtocolMismatch, "protocol is ''"),
    Refusal("an older protocol", _chat(protocol="mew/v0.3"), ProtocolMismatch, "'mew/v0.3'"),
    Refusal("an ancestor's protocol", _chat(protocol="meup/v0.2"), ProtocolMismatch, "'meup/v0.2'"),
    Refusal("another dialect's protocol", _chat(protocol="mcpx/v0.1"), ProtocolMismatch, "speaks 'mew/v0.4'"),
    Refusal("id null", _chat(id=None), InvalidEnvelope, "id must be a non-empty string"),
    Refusal("id empty", _chat(id=""), InvalidEnvelope, "id must be a non-empty string"),
    Refusal("id a number", _chat(id=7), InvalidEnvelope, "id must be a non-empty string"),
    Refusal("id too long", _chat(id="i" * 257), InvalidEnvelope, "longer than 256 characters"),
    Refusal("id with a line break", _chat(id="a\nb"), InvalidEnvelope, "id holds control characters"),
    Refusal("id with an escape", _chat(id="a\x1b[2J"), InvalidEnvelope, "id holds control characters"),
    Refusal("id with a delete", _chat(id="a\x7f"), InvalidEnvelope, "id holds control characters"),
    Refusal("ts null", _chat(ts=None), InvalidEnvelope, "ts must be an RFC 3339 timestamp"),
    Refusal("ts a number", _chat(ts=1767182400), InvalidEnvelope, "ts must be an RFC 3339 timestamp"),
    Refusal("ts a list", _chat(ts=[TS]), InvalidEnvelope, "ts must be an RFC 3339 timestamp"),
    Refusal("ts yesterday", _chat(ts="yesterday"), InvalidEnvelope, "ts must be an RFC 3339 timestamp"),
    Refusal("ts without a zone", _chat(ts="2026-01-31T12:00:00"), InvalidEnvelope, "ts must be"),
    Refusal("ts a date", _chat(ts="2026-01-31"), InvalidEnvelope, "ts must be"),
    Refusal("ts a week date", _chat(ts="2026-W05-6T12:00:00.000Z"), InvalidEnvelope, "ts must be"),
    Refusal("ts without separators", _chat(ts="2026-01-31T120000.00000Z"), InvalidEnvelope, "ts must be"),
    Refusal("ts with a comma", _chat(ts="2026-01-31T12:00:00,000Z"), InvalidEnvelope, "ts must be"),
    Refusal("ts with a short zone", _chat(ts="2026-01-31T12:00:00.0+01"), InvalidEnvelope, "ts must be"),
    Refusal("ts at hour 24", _chat(ts="2026-01-31T24:00:00Z"), InvalidEnvelope, "ts must be"),
    Refusal("ts in the 13th month", _chat(ts="2026-13-01T12:00:00Z"), InvalidEnvelope, "ts must be"),
    Refusal(
        "ts on a day that is not",
        _chat(ts="2026-02-30T12:00:00Z"),
        InvalidEnvelope,
        "does not exist: 2026-02-30",
    ),
    Refusal("ts in other digits", _chat(ts="٢٠٢٦-01-31T12:00:00Z"), InvalidEnvelope, "ts must be"),
    Refusal(
        "ts without end", _chat(ts="2026-01-31T12:00:00." + "0" * 64 + "Z"), InvalidEnvelope, "ts must be"
    ),
    Refusal("from null", _chat(from_=None), InvalidEnvelope, "from must be a non-empty string"),
    Refusal("from empty", _chat(from_=""), InvalidEnvelope, "from must be a non-empty string"),
    Refusal("from a list", _chat(from_=["alice"]), InvalidEnvelope, "from must be a non-empty string"),
    Refusal("from too long", _chat(from_="a" * 257), InvalidEnvelope, "at most 256 characters"),
    Refusal("to null", _chat(to=None), InvalidEnvelope, "to must be an array of strings"),
    Refusal("to a string", _chat(to="bob"), InvalidEnvelope, "to must be an array of strings"),
    Refusal("to an object", _chat(to={"bob": True}), InvalidEnvelope, "to must be an array of strings"),
    Refusal("to a number inside", _chat(to=["bob", 1]), InvalidEnvelope, "to must hold non-empty strings"),
    Refusal("to nobody inside", _chat(to=["bob", ""]), InvalidEnvelope, "to must hold non-empty strings"),
    Refusal("to a null inside", _chat(to=[None]), InvalidEnvelope, "to must hold non-empty strings"),
    Refusal("to a crowd", _chat(to=["bob"] * 1025), InvalidEnvelope, "to has more than 1024 entries"),
    Refusal("kind null", _chat(kind=None), InvalidEnvelope, "kind must be a non-empty string"),
    Refusal("kind empty", _chat(kind=""), InvalidEnvelope, "kind must be a non-empty string"),
    Refusal("kind a list", _chat(kind=["chat"]), InvalidEnvelope, "kind must be a non-empty string"),
    Refusal("kind an object", _chat(kind={"chat": 1}), InvalidEnvelope, "kind must be a non-empty string"),
    Refusal("kind too long", _chat(kind="k" * 257), InvalidEnvelope, "kind is longer than 256 characters"),
    Refusal("kind with a line break", _chat(kind="chat\n"), InvalidEnvelope, "kind holds control characters"),
    Refusal(
        "kind with a line separator",
        _chat(kind="a/\u2028b"),
        InvalidEnvelope,
        "kind holds control characters",
    ),
    Refusal(
        "correlation_id null", _chat(correlation_id=None), InvalidEnvelope, "correlation_id must be an array"
    ),
    Refusal(
        "correlation_id an object",
        _chat(correlation_id={}),
        InvalidEnvelope,
        "correlation_id must be an array",
    ),
    Refusal("correlation_id empty", _chat(correlation_id=""), InvalidEnvelope, "correlation_id must hold"),
    Refusal(
        "correlation_id of numbers", _chat(correlation_id=[1]), InvalidEnvelope, "correlation_id must hold"
    ),
    Refusal(
        "correlation_id of lists", _chat(correlation_id=[["a"]]), InvalidEnvelope, "correlation_id must hold"
    ),
    Refusal(
        "too many correlations", _chat(correlation_id=["a"] * 257), InvalidEnvelope, "more than 256 entries"
    ),
    Refusal("context null", _chat(context=None), InvalidEnvelope, "context must be a string"),
    Refusal("context a list", _chat(context=["a"]), InvalidEnvelope, "context must be a string"),
    Refusal("context too long", _chat(context="c" * 1025), InvalidEnvelope, "at most 1024 characters"),
    Refusal("payload null", _chat(payload=None), InvalidEnvelope, "payload must be an object"),
    Refusal("payload a list", _chat(payload=[]), InvalidEnvelope, "payload must be an object"),
    Refusal("payload a string", _chat(payload="hi"), InvalidEnvelope, "payload must be an object"),
    Refusal(
        "a request of MCPx", _chat(kind="mcp/request:tools/call"), InvalidEnvelope, "write 'mcp/request'"
    ),
    Refusal(
        "a response of MCPx", _chat(kind="mcp/response:tools/call:x"), InvalidEnvelope, "write 'mcp/response'"
    ),
    Refusal("a proposal of MCPx", _chat(kind="mcp/proposal:"), InvalidEnvelope, "write 'mcp/proposal'"),
)

REFUSALS = NOT_JSON + NOT_AN_ENVELOPE


# Good envelopes of every dialect: where mutations start.


def _word(dialect: DialectName, kind: str) -> str:
    if dialect == "mcpx":
        return kind.replace("mcp/", "proposal/")
    words = {"chat": "chat.message", "mcp/withdraw": "mcpx.withdraw.proposal", "mcp/reject": "mcpx.reject"}
    return words.get(kind, kind.replace("/", ".", 1)) if dialect == "m3p" else kind


def _call_word(dialect: DialectName, word: str) -> str:
    return {
        "mew": f"mcp/{word}",
        "mcpx": f"mcp/{word}:tools/call:read_file",
        "m3p": f"mcp.{word}.tools/call:read_file",
    }[dialect]


def _rights(dialect: DialectName) -> list[Json]:
    rights: dict[DialectName, list[Json]] = {
        "mew": [{"kind": "chat"}, {"kind": "mcp/request", "payload": {"method": "tools/*"}}],
        "mcpx": ["chat", "mcp/request:tools/*"],
        "m3p": ["chat.message", "mcp.request.tools/*"],
    }
    return rights[dialect]


def _spaced(raw: bytes) -> bytes:
    return json.dumps(json.loads(raw), indent=1).encode() + b"\n"


def _seeds(dialect: DialectName) -> tuple[bytes, ...]:
    def one(kind: str, **members: Json) -> bytes:
        if isinstance(members.get("correlation_id"), str) and dialect == "mew":
            members["correlation_id"] = [members["correlation_id"]]
        return text(dialect, kind, **members)

    chat, thought = _word(dialect, "chat"), _word(dialect, "reasoning/thought")
    request, response, proposal = (_call_word(dialect, word) for word in ("request", "response", "proposal"))
    grant = {"recipient": "bob", "capabilities": _rights(dialect)}
    numbers = [1, 2.5, -0.0, 1e20, 10**30, True, None]
    return (
        one(chat, payload={"text": "hi", "format": "plain"}),
        one(chat, payload={"text": "ünïcödé \u2028 \n 😀"}, to=["bob"], context="a/b"),
        one(request, ts="2026-02-28T23:59:59.999Z", to=["files"], payload=call()),
        one(request, correlation_id="p1", payload=call()),
        one(response, to=["bob"], correlation_id="r1", payload={"result": {}}),
        one(proposal, to=["files"], payload=proposed()),
        one(proposal, payload=proposed(), x_correlation_ids=["a", "b"]),
        one(chat, correlation_id="a", x_correlation_ids=["a", "b"], payload={}),
        one(_word(dialect, "mcp/withdraw"), correlation_id="p1", payload={"reason": "other"}),
        one(_word(dialect, "mcp/reject"), correlation_id="p1"),
        one(_word(dialect, "capability/grant"), to=["bob"], payload=grant),
        one(thought, context="r1", payload={"n": numbers}),
        one(_word(dialect, "acme/v1.2/run"), x_vendor={"deep": [[[{}]]]}, x_origin={"protocol": "none"}),
        one(chat, id=..., ts=..., from_=..., protocol=..., payload={"text": "short"}),
        _spaced(one(chat, id=..., payload={"text": "spaced\u00e9"})),
    )


SEEDS: dict[DialectName, tuple[bytes, ...]] = {dialect: _seeds(dialect) for dialect in DIALECTS}

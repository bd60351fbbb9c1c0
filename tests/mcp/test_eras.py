"""One era's shapes as the other's: nothing unknown is lost, nothing is changed in place."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp_types import jsonrpc, methods, version

from mcp import types
from moot.mcp import eras
from moot.mcp.eras import CallerInfo, JsonObject, caller_of, with_caller

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_OBJECTS = st.dictionaries(st.text(max_size=8), _VALUES, max_size=4)


def test_our_words_are_the_sdks_words() -> None:
    """The values stand here as literals; this holds them to the specification as the SDK has it."""
    assert version.MODERN_PROTOCOL_VERSIONS == eras.STATELESS_VERSIONS
    assert version.HANDSHAKE_PROTOCOL_VERSIONS == eras.HANDSHAKE_VERSIONS
    assert types.PROTOCOL_VERSION_META_KEY == eras.PROTOCOL_VERSION_KEY
    assert types.CLIENT_INFO_META_KEY == eras.CLIENT_INFO_KEY
    assert types.CLIENT_CAPABILITIES_META_KEY == eras.CLIENT_CAPABILITIES_KEY
    assert types.LOG_LEVEL_META_KEY == eras.LOG_LEVEL_KEY
    assert types.SERVER_INFO_META_KEY == eras.SERVER_INFO_KEY
    assert SUBSCRIPTION_ID_META_KEY == eras.SUBSCRIPTION_ID_KEY
    assert methods.CACHEABLE_METHODS == eras.CACHEABLE
    assert methods.INPUT_REQUIRED_METHODS == eras.INPUT_METHODS
    assert get_args(types.LoggingLevel) == eras.LOG_LEVELS
    asked = {method for method, _ in methods.SERVER_REQUESTS} - {"ping"}
    assert asked == eras.SERVER_REQUESTS
    assert jsonrpc.HEADER_MISMATCH == eras.HEADER_MISMATCH
    assert jsonrpc.UNSUPPORTED_PROTOCOL_VERSION == eras.UNSUPPORTED_VERSION
    assert (jsonrpc.CONNECTION_CLOSED, jsonrpc.REQUEST_TIMEOUT) == (eras.UNREACHABLE, eras.TIMED_OUT)
    changes = {method for method, _ in methods.SERVER_NOTIFICATIONS if method.endswith("list_changed")}
    assert changes == set(eras.LIST_CHANGED)


@given(params=_OBJECTS, meta=_OBJECTS, capabilities=_OBJECTS)
def test_a_caller_is_put_in_and_taken_out_without_a_trace(
    params: JsonObject, meta: JsonObject, capabilities: JsonObject
) -> None:
    params = params | ({"_meta": meta} if meta else {})
    before = deepcopy(params)
    caller = CallerInfo("2026-07-28", {"name": "x", "version": "1"}, capabilities, "debug")
    stamped = with_caller(params, caller)
    assert caller_of(stamped) == (before, caller)
    assert params == before


def test_params_without_a_caller_come_back_as_they_are() -> None:
    params: JsonObject = {"name": "t", "_meta": {"progressToken": 1}}
    bare, caller = caller_of(params)
    assert bare is params
    assert caller == eras.UNKNOWN_CALLER


@pytest.mark.parametrize("wrong", [5, [], None, True])
def test_reserved_keys_of_the_wrong_type_count_as_absent(wrong: Any) -> None:
    meta = {
        eras.PROTOCOL_VERSION_KEY: wrong,
        eras.CLIENT_INFO_KEY: wrong,
        eras.CLIENT_CAPABILITIES_KEY: wrong,
        eras.LOG_LEVEL_KEY: "loud",
    }
    assert caller_of({"a": 1, "_meta": meta | {"mine": 2}}) == (
        {"a": 1, "_meta": {"mine": 2}},
        eras.UNKNOWN_CALLER,
    )
    assert caller_of({"a": 1, "_meta": meta})[0] == {"a": 1}


@given(result=_OBJECTS, method=st.sampled_from(["tools/call", "tools/list", "resources/read", "vendor/x"]))
def test_a_result_goes_to_the_stateless_era_and_back(result: JsonObject, method: str) -> None:
    before = deepcopy(result)
    there = eras.stateless_result(method, result)
    assert there["resultType"] == "complete"
    assert ("ttlMs" in there) == (method in eras.CACHEABLE)
    assert eras.handshake_result(method, there) == before
    assert result == before


def test_what_a_server_said_of_caching_is_kept() -> None:
    answer = {"tools": [], "ttlMs": 5000, "cacheScope": "public", "resultType": "complete", "vendor": 1}
    assert eras.stateless_result("tools/list", answer) == answer
    # A tool may call a field of its own so.
    assert eras.handshake_result("tools/call", {"ttlMs": 1, "content": []}) == {"ttlMs": 1, "content": []}


def test_both_greetings_say_the_same() -> None:
    answer: JsonObject = {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {"listChanged": True}, "vendor": {}},
        "serverInfo": {"name": "s", "version": "1", "title": "S"},
        "instructions": "careful",
        "_meta": {"vendor/x": 1},
        "vendorField": [1],
    }
    found = eras.to_discover_result(answer)
    types.DiscoverResult.model_validate(found)
    assert found["_meta"][eras.SERVER_INFO_KEY] == answer["serverInfo"]
    back = eras.to_initialize_result(found, "2025-06-18")
    assert back == answer
    types.InitializeResult.model_validate(back)
    assert eras.to_initialize_result({})["serverInfo"] == {"name": "unnamed", "version": "0"}


def test_a_question_is_what_the_sdk_reads_as_one() -> None:
    request = {
        "method": "elicitation/create",
        "params": {"message": "?", "requestedSchema": {"type": "object"}},
    }
    made = eras.input_required({"k": request}, "state")
    assert eras.is_input_required(made)
    assert not eras.is_input_required({"resultType": "complete"})
    assert not eras.is_input_required(None)
    read = types.InputRequiredResult.model_validate(made)
    assert read.request_state == "state"


def test_progress_tokens() -> None:
    assert eras.progress_token({"_meta": {"progressToken": "a"}}) == "a"
    assert eras.progress_token({"_meta": {"progressToken": 0}}) == 0
    nothing: list[Any] = [None, {}, {"progressToken": True}, {"progressToken": []}]
    for wrong in nothing:
        assert eras.progress_token({"_meta": wrong}) is None
    assert eras.with_progress_token({"_meta": {"x": 1}}, 7) == {"_meta": {"x": 1, "progressToken": 7}}
    assert eras.with_progress_token({}, 7) == {"_meta": {"progressToken": 7}}


def test_levels_are_in_order() -> None:
    assert eras.at_least("error", "warning")
    assert eras.at_least("warning", "warning")
    assert not eras.at_least("info", "warning")
    assert not eras.at_least("loud", "debug")

"""The two eras of MCP as shapes of JSON, and how one is turned into the other.

The handshake era (up to 2025-11-25) opens with `initialize` and lets a server send requests of its own.
The stateless era (2026-07-28) carries version, client and capabilities in the `_meta` of every request,
marks results with `resultType`, and where a server needs input, the call itself answers `input_required`
with `inputRequests` and `requestState`; the client repeats the call with `inputResponses`.

Everything here takes and returns plain JSON values, loses no field it does not know, and copies what it
changes: the argument is never modified. Values are literals rather than the SDK's constants, because
importing the SDK's models takes longer than starting everything else; a test compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

from moot.protocol.operation import Json

JsonObject = dict[str, Any]
Era = Literal["handshake", "stateless"]

STATELESS_VERSIONS: Final = ("2026-07-28",)
HANDSHAKE_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
# The only version with JSON-RPC batches: clients may send them.
BATCH_VERSION: Final = "2025-03-26"
STATELESS_VERSION: Final = STATELESS_VERSIONS[-1]
HANDSHAKE_VERSION: Final = HANDSHAKE_VERSIONS[-1]

PROTOCOL_VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
CLIENT_INFO_KEY: Final = "io.modelcontextprotocol/clientInfo"
CLIENT_CAPABILITIES_KEY: Final = "io.modelcontextprotocol/clientCapabilities"
LOG_LEVEL_KEY: Final = "io.modelcontextprotocol/logLevel"
SERVER_INFO_KEY: Final = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_ID_KEY: Final = "io.modelcontextprotocol/subscriptionId"
# Ours: the era of the MCP client that made a call in a space. Not MCP's own key for the version: a server of
# the handshake era refuses a call that carries it.
CLIENT_ERA_KEY: Final = "moot/client-era"
_REQUEST_KEYS: Final = frozenset(
    {PROTOCOL_VERSION_KEY, CLIENT_INFO_KEY, CLIENT_CAPABILITIES_KEY, LOG_LEVEL_KEY, CLIENT_ERA_KEY}
)

# The range that MCP leaves to implementations; the SDKs use these two in the same sense.
UNREACHABLE: Final = -32000
TIMED_OUT: Final = -32001
HEADER_MISMATCH: Final = -32020
UNSUPPORTED_VERSION: Final = -32022

# What a server offers, named after the field of a list result that holds it.
OfferKind = Literal["tools", "resources", "resourceTemplates", "prompts"]
OFFER_KINDS: Final[tuple[OfferKind, ...]] = ("tools", "resources", "resourceTemplates", "prompts")
# Offer kind → the field of an offer that identifies it.
OFFER_KEYS: Final[Mapping[OfferKind, str]] = {
    "tools": "name",
    "resources": "uri",
    "resourceTemplates": "uriTemplate",
    "prompts": "name",
}
# List method → what it lists.
LISTS: Final[Mapping[str, OfferKind]] = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}
# First word of a method → the capability that a server declares for it.
FEATURES: Final[Mapping[str, str]] = {
    "tools": "tools",
    "resources": "resources",
    "prompts": "prompts",
    "completion": "completions",
    "logging": "logging",
}
# Results of these carry how long they may be cached in the stateless era.
CACHEABLE: Final = frozenset({*LISTS, "resources/read", "server/discover"})
# Calls of these may answer `input_required`.
INPUT_METHODS: Final = frozenset({"tools/call", "prompts/get", "resources/read"})
# What a server may request from its caller: requests in one era, `inputRequests` in the other.
SERVER_REQUESTS: Final = frozenset({"elicitation/create", "sampling/createMessage", "roots/list"})
LIST_CHANGED: Final[Mapping[str, str]] = {
    "notifications/tools/list_changed": "tools",
    "notifications/resources/list_changed": "resources",
    "notifications/prompts/list_changed": "prompts",
}
# Least severe first (RFC 5424).
LOG_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


class CallerInfo(NamedTuple):
    """What a request's `_meta` says about its caller in the stateless era; None where it says nothing."""

    version: str | None = None
    info: JsonObject | None = None
    capabilities: JsonObject | None = None
    log_level: str | None = None
    # Only from a client of the handshake era.
    era: Era | None = None


UNKNOWN_CALLER: Final = CallerInfo()


def caller_of(params: Mapping[str, Json]) -> tuple[JsonObject, CallerInfo]:
    """Params without the reserved keys of the stateless era, and what those keys said.

    Keys of the wrong type are dropped as if absent. Without such keys the same object comes back.
    """
    meta = params.get("_meta")
    if not isinstance(meta, dict) or _REQUEST_KEYS.isdisjoint(meta):
        return params if isinstance(params, dict) else dict(params), UNKNOWN_CALLER
    rest = {key: value for key, value in meta.items() if key not in _REQUEST_KEYS}
    version, info = meta.get(PROTOCOL_VERSION_KEY), meta.get(CLIENT_INFO_KEY)
    capabilities, level = meta.get(CLIENT_CAPABILITIES_KEY), meta.get(LOG_LEVEL_KEY)
    caller = CallerInfo(
        version if isinstance(version, str) else None,
        info if isinstance(info, dict) else None,
        capabilities if isinstance(capabilities, dict) else None,
        level if level in LOG_LEVELS else None,
        "handshake" if meta.get(CLIENT_ERA_KEY) == "handshake" else None,
    )
    bare: JsonObject = {**params}
    if rest:
        bare["_meta"] = rest
    else:
        # The caller wrote no empty one.
        del bare["_meta"]
    return bare, caller


def with_caller(params: Mapping[str, Json], caller: CallerInfo) -> JsonObject:
    """Params as the stateless era requires them, with `caller` in `_meta`."""
    meta = params.get("_meta")
    stamped: JsonObject = dict(meta) if isinstance(meta, dict) else {}
    stamped[PROTOCOL_VERSION_KEY] = caller.version or STATELESS_VERSION
    stamped[CLIENT_CAPABILITIES_KEY] = caller.capabilities or {}
    if caller.info is not None:
        stamped[CLIENT_INFO_KEY] = caller.info
    if caller.log_level is not None:
        stamped[LOG_LEVEL_KEY] = caller.log_level
    return {**params, "_meta": stamped}


def stateless_result(method: str, result: Mapping[str, Json]) -> JsonObject:
    """A result with the fields that the stateless era requires, where they are missing.

    A result without cache hints is marked as stale at once and private.
    """
    made: JsonObject = {**result}
    made.setdefault("resultType", "complete")
    if method in CACHEABLE:
        made.setdefault("ttlMs", 0)
        made.setdefault("cacheScope", "private")
    return made


def handshake_result(method: str, result: Mapping[str, Json]) -> JsonObject:
    """A complete result in the handshake era's shape: without `resultType` and cache hints.

    An `input_required` result has no such shape (see `is_input_required`): its input is requested first.
    """
    dropped = ("resultType", "ttlMs", "cacheScope") if method in CACHEABLE else ("resultType",)
    return {key: value for key, value in result.items() if key not in dropped}


def is_input_required(result: object) -> bool:
    """Whether a call answered that it needs input from its caller first."""
    return isinstance(result, dict) and result.get("resultType") == "input_required"


def input_required(requests: Mapping[str, Json], state: str) -> JsonObject:
    """The answer of a call that needs input: `requests` maps keys to `{method, params}`."""
    return {"resultType": "input_required", "inputRequests": dict(requests), "requestState": state}


def to_discover_result(initialize_result: Mapping[str, Json]) -> JsonObject:
    """The `server/discover` result that says the same as an `initialize` result."""
    made: JsonObject = {
        key: value
        for key, value in initialize_result.items()
        if key not in ("protocolVersion", "serverInfo", "_meta")
    }
    made.setdefault("capabilities", {})
    made["supportedVersions"] = list(STATELESS_VERSIONS)
    meta = initialize_result.get("_meta")
    about: JsonObject = dict(meta) if isinstance(meta, dict) else {}
    if isinstance(initialize_result.get("serverInfo"), dict):
        about[SERVER_INFO_KEY] = initialize_result["serverInfo"]
    if about:
        made["_meta"] = about
    return stateless_result("server/discover", made)


def to_initialize_result(discover_result: Mapping[str, Json], version: str = HANDSHAKE_VERSION) -> JsonObject:
    """The `initialize` result that says the same as a `server/discover` result."""
    made = handshake_result("server/discover", discover_result)
    made.pop("supportedVersions", None)
    meta = made.pop("_meta", None)
    rest: JsonObject = dict(meta) if isinstance(meta, dict) else {}
    info = rest.pop(SERVER_INFO_KEY, None)
    made.setdefault("capabilities", {})
    made["protocolVersion"] = version
    # The handshake requires a name and a version; a stateless server need not have given any.
    made["serverInfo"] = info if isinstance(info, dict) else {"name": "unnamed", "version": "0"}
    if rest:
        made["_meta"] = rest
    return made


def progress_token(params: Mapping[str, Json]) -> Json:
    """The token under which a caller wants progress notifications; None if it wants none."""
    meta = params.get("_meta")
    token = meta.get("progressToken") if isinstance(meta, dict) else None
    return token if isinstance(token, str | int) and not isinstance(token, bool) else None


def wants_notifications(params: Mapping[str, Json]) -> bool:
    """Whether params in the stateless shape ask for progress or log messages before the result."""
    meta = params.get("_meta")
    return isinstance(meta, dict) and ("progressToken" in meta or LOG_LEVEL_KEY in meta)


def with_progress_token(params: Mapping[str, Json], token: Json) -> JsonObject:
    """Params that ask for progress under another token."""
    meta = params.get("_meta")
    return {**params, "_meta": {**(meta if isinstance(meta, dict) else {}), "progressToken": token}}


def at_least(level: str, wanted: str) -> bool:
    """Whether a log message of `level` passes a filter of `wanted` and above."""
    if level not in LOG_LEVELS or wanted not in LOG_LEVELS:
        return False
    return LOG_LEVELS.index(level) >= LOG_LEVELS.index(wanted)

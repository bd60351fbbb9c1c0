"""The description of the HTTP interface of a gateway, as one table: OpenAPI 3.1."""

from __future__ import annotations

from typing import Final, Protocol

from moot.protocol.operation import Json

_ERROR: Final[Json] = {
    "type": "object",
    "required": ["error", "message"],
    "properties": {"error": {"type": "string"}, "message": {"type": "string"}},
}
_ENVELOPE: Final[Json] = {
    "type": "object",
    "required": ["kind"],
    "properties": {
        "protocol": {"type": "string"},
        "id": {"type": "string"},
        "ts": {"type": "string", "format": "date-time"},
        "from": {"type": "string"},
        "to": {"type": "array", "items": {"type": "string"}},
        "kind": {"type": "string"},
        "correlation_id": {"type": "array", "items": {"type": "string"}},
        "context": {"type": "string"},
        "payload": {"type": "object"},
    },
}
_CAPABILITIES: Final[Json] = {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "object"}]}}


def _answer(words: str, schema: Json | None = None) -> Json:
    return {"description": words, "content": {"application/json": {"schema": schema or {"type": "object"}}}}


def _parameter(name: str, place: str, words: str) -> Json:
    return {
        "name": name,
        "in": place,
        "required": place == "path",
        "description": words,
        "schema": {"type": "string"},
    }


_SPACE: Final = _parameter("space", "query", "the space; may be left out when there is only one")
_DIALECT: Final = _parameter("dialect", "query", "mew (default), mcpx or m3p")
_ID: Final = _parameter("id", "path", "the participant's name or id")
_MINT_BODY: Final[Json] = {
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["seconds"],
                "properties": {"seconds": {"type": "number"}, "only": {"type": "array"}},
            }
        }
    }
}
_ADMIN_DENIED: Final[Json] = {
    "403": _answer("not an administrator", _ERROR),
    "404": _answer("no such space or participant", _ERROR),
}
_DENIED: Final[Json] = {
    "401": _answer("no token", _ERROR),
    "403": _answer("wrong token, or not allowed", _ERROR),
    "404": _answer("no such space", _ERROR),
}


class OfferedFeatures(Protocol):
    """Which endpoints there are."""

    @property
    def inject(self) -> bool: ...

    @property
    def poll(self) -> bool: ...

    @property
    def admin(self) -> bool: ...

    @property
    def metrics(self) -> bool: ...

    @property
    def console(self) -> bool: ...


def openapi(version: str, offered: OfferedFeatures) -> Json:
    """OpenAPI 3.1 of what this gateway answers, and of nothing that is turned off."""
    document = _everything(version)
    paths = document["paths"]
    messages = paths["/participants/{id}/messages"]
    if not offered.poll:
        del messages["get"], paths["/spaces/{space}/history"]
    if not offered.inject:
        del messages["post"]
    hidden = [path for path in paths if path.startswith("/admin/") and not offered.admin]
    hidden += [] if offered.metrics else ["/metrics"]
    hidden += [] if offered.console else ["/console/{path}", "/service-worker.js", "/manifest.webmanifest"]
    hidden += [] if messages else ["/participants/{id}/messages"]
    for path in hidden:
        del paths[path]
    return document


def _everything(version: str) -> Json:
    secured: Json = [{"bearer": []}]
    return {
        "openapi": "3.1.0",
        "info": {"title": "Moot gateway", "version": version, "license": {"name": "Apache-2.0"}},
        "components": {"securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}}},
        "paths": {
            "/": {
                "get": {
                    "summary": "the console, for people; the status page where it is turned off",
                    "responses": {"200": {"description": "HTML"}},
                }
            },
            "/console/{path}": {
                "get": {
                    "summary": "a file of the console",
                    "parameters": [_parameter("path", "path", "such as core/state.js")],
                    "responses": {
                        "200": {"description": "the file, with an ETag"},
                        "304": {"description": "you have it already"},
                        "404": _answer("the console has no such file", _ERROR),
                    },
                }
            },
            "/service-worker.js": {
                "get": {
                    "summary": "the console's service worker: it opens the page without a connection",
                    "responses": {"200": {"description": "a script"}},
                }
            },
            "/manifest.webmanifest": {
                "get": {
                    "summary": "what makes the console an app that can be installed",
                    "responses": {"200": {"description": "a web application manifest"}},
                }
            },
            "/status": {
                "get": {"summary": "a plain status page", "responses": {"200": {"description": "HTML"}}}
            },
            "/health": {
                "get": {"summary": "is it well", "responses": {"200": _answer("ok, degraded or cut_off")}}
            },
            "/livez": {
                "get": {
                    "summary": "liveness probe, under whatever Host: the process answers",
                    "responses": {"200": _answer("it does")},
                }
            },
            "/readyz": {
                "get": {
                    "summary": "readiness probe, under whatever Host: work can be sent here",
                    "responses": {
                        "200": _answer("ready"),
                        "503": _answer("starting, degraded, cut_off or stopping"),
                    },
                }
            },
            "/metrics": {
                "get": {"summary": "figures for Prometheus", "responses": {"200": {"description": "text"}}}
            },
            "/openapi.json": {"get": {"summary": "this", "responses": {"200": _answer("OpenAPI 3.1")}}},
            "/spaces": {
                "get": {
                    "summary": "the spaces that your token opens",
                    "security": secured,
                    "responses": {
                        "200": _answer("their names, your name there, and whether you are connected"),
                        "401": _answer("no or unknown token", _ERROR),
                        "403": _answer("an account of a provider that no rule lets in", _ERROR),
                        "503": _answer("the key of a provider's token is looked for", _ERROR),
                    },
                }
            },
            "/oidc": {
                "get": {
                    "summary": "the providers at which people sign in; none without gateway.oidc",
                    "responses": {
                        "200": _answer(
                            "providers: issuer, client_id, scopes, resource, endpoints, abilities"
                        ),
                    }
                    | _DENIED,
                }
            },
            "/oidc/mcp": {
                "get": {
                    "summary": "what an MCP server for many people tells its clients (gateway.oidc.mcp)",
                    "security": secured,
                    "responses": {
                        "200": _answer("space, resource, authorization_servers, scopes"),
                        "401": _answer("no or unknown token", _ERROR),
                    }
                    | _DENIED,
                }
            },
            "/oidc/token": {
                "post": {
                    "summary": "a token of the space for that of a person, for such a server (RFC 8693)",
                    "security": secured,
                    "responses": {
                        "200": _answer("access_token, expires_in, scope, participant_id"),
                        "400": _answer("no token of a person for this MCP server", _ERROR),
                        "401": _answer("no or unknown token of the server", _ERROR),
                        "503": _answer("the key of a provider's token is looked for", _ERROR),
                    }
                    | _DENIED,
                }
            },
            "/oidc/sign-out": {
                "post": {
                    "summary": "end all that the person with this token of a provider has signed in for",
                    "security": secured,
                    "responses": {
                        "200": _answer("signed out"),
                        "400": _answer("not a token of a provider", _ERROR),
                        "401": _answer("no or unknown token", _ERROR),
                    }
                    | _DENIED,
                }
            },
            "/oidc/backchannel-logout": {
                "post": {
                    "summary": "a provider tells that a session has ended there",
                    "responses": {
                        "200": _answer("the sessions here have ended, too"),
                        "400": _answer("no logout token for this gateway", _ERROR),
                        "404": _answer("there is no gateway.oidc", _ERROR),
                        "413": _answer("the body is too large", _ERROR),
                        "415": _answer("not a form", _ERROR),
                    }
                    | _DENIED,
                }
            },
            "/sign-in-links": {
                "post": {
                    "summary": "a one-time code that signs you in on another device",
                    "security": secured,
                    "responses": {
                        "201": _answer(
                            "code and valid_seconds; with page also address, qr, and other_machines: whether"
                            " browsers there can open it; with elsewhere: true, an address that they can"
                            " open if there is one"
                        ),
                        "400": _answer("page is no address of a page", _ERROR),
                        "401": _answer("no or unknown token", _ERROR),
                        "415": _answer("not application/json", _ERROR),
                        "429": _answer("more than gateway.sign_in_links_per_minute: see Retry-After", _ERROR),
                    }
                    | _DENIED,
                }
            },
            "/sign-in-links/redeem": {
                "post": {
                    "summary": "the token of such a code, once",
                    "responses": {
                        "200": _answer("token"),
                        "400": _answer("the body is too large or no object", _ERROR),
                        "415": _answer("not application/json", _ERROR),
                    }
                    | _DENIED,
                }
            },
            "/push-subscriptions": {
                "get": {
                    "summary": "the gateway's key for Web Push, and your devices that are told by it",
                    "security": secured,
                    "responses": {
                        "200": _answer("key, subscriptions, refused (why none can be added, or null)"),
                        "503": _answer("the key cannot be used", _ERROR),
                    }
                    | _DENIED,
                },
                "post": {
                    "summary": "turn notifications on for a device: its subscription, and quiet_hours",
                    "security": secured,
                    "responses": {
                        "201": _answer("its push service took a first message"),
                        "400": _answer("no subscription, or a push service that is not allowed", _ERROR),
                        "415": _answer("not application/json", _ERROR),
                        "429": _answer("too often, or too many devices", _ERROR),
                        "502": _answer("its push service did not take a first message", _ERROR),
                        "503": _answer("the key or the data folder cannot be used", _ERROR),
                    }
                    | _DENIED,
                },
            },
            "/push-subscriptions/{id}": {
                "delete": {
                    "summary": "turn them off for one of your devices",
                    "security": secured,
                    "parameters": [_parameter("id", "path", "SHA-256 of its endpoint, in base64url")],
                    "responses": {"200": _answer("removed"), "202": _answer("removed, but not on disk")}
                    | _DENIED,
                }
            },
            "/spaces/{space}/proposals": {
                "get": {
                    "summary": "open proposals, and approved calls whose outcome is not known (yet)",
                    "security": secured,
                    "parameters": [
                        _parameter("space", "path", "the name of the space"),
                        _DIALECT,
                        _parameter("after", "query", "`next` of the page before"),
                    ],
                    "responses": {
                        "200": _answer("proposals, each with its envelope; next if there are more"),
                        "400": _answer("bad after", _ERROR),
                        "401": _answer("no or unknown token", _ERROR),
                    }
                    | _DENIED,
                }
            },
            "/spaces/{space}/proposals/{id}": {
                "get": {
                    "summary": "one proposal, open or settled, and what came of it",
                    "security": secured,
                    "parameters": [
                        _parameter("space", "path", "the name of the space"),
                        _parameter("id", "path", "the id of the proposal"),
                        _DIALECT,
                    ],
                    "responses": {
                        "200": _answer("the proposal"),
                        "401": _answer("no or unknown token", _ERROR),
                    }
                    | _DENIED
                    | {"404": _answer("no such proposal is known here (any more)", _ERROR)},
                }
            },
            "/spaces/{space}/history": {
                "get": {
                    "summary": "old messages, a page at a time, back to the beginning of the journal",
                    "security": secured,
                    "parameters": [
                        _parameter("space", "path", "the name of the space"),
                        _DIALECT,
                        _parameter("before", "query", "`before` of the page after it; the newest without it"),
                        _parameter("limit", "query", "messages at most"),
                        _parameter("text", "query", "only messages with this text; may be given again"),
                        _parameter("kind", "query", "only this kind and those below it; `*` is anything"),
                        _parameter("from", "query", "only of this participant"),
                        _parameter("id", "query", "only the message with this id"),
                    ],
                    "responses": {
                        "200": _answer(
                            "messages, oldest first; before, null on the last page; end, why it is the last: "
                            "beginning, removed, not_a_member or not_kept; gap, true where this gateway does "
                            "not have all messages"
                        ),
                        "400": _answer("a parameter that is unknown or wrong", _ERROR),
                        "401": _answer("no or unknown token", _ERROR),
                        "429": _answer("more than gateway.history_pages_per_second, or 32 at once", _ERROR),
                        "503": _answer("others are reading: Retry-After", _ERROR),
                    }
                    | _DENIED,
                }
            },
            "/spaces/{space}/content": {
                "post": {
                    "summary": "keep a value that is too large for an envelope, as it is in the body",
                    "security": secured,
                    "parameters": [_parameter("space", "path", "the name of the space")],
                    "requestBody": {"content": {"application/octet-stream": {}}},
                    "responses": {
                        "201": _answer("sha256 and bytes of the value"),
                        "401": _answer("no or unknown token", _ERROR),
                        "413": _answer("more than gateway.max_content_bytes", _ERROR),
                        "429": _answer("too many at once: Retry-After", _ERROR),
                        "503": _answer("the cluster cannot be reached now", _ERROR),
                        "507": _answer("the disk takes no more now", _ERROR),
                    }
                    | _DENIED,
                }
            },
            "/spaces/{space}/content/{sha256}": {
                "get": {
                    "summary": "a value that was kept",
                    "security": secured,
                    "parameters": [
                        _parameter("space", "path", "the name of the space"),
                        _parameter("sha256", "path", "of the value, 64 hexadecimal digits"),
                    ],
                    "responses": {
                        "200": {"description": "the value, as it was sent"},
                        "401": _answer("no or unknown token", _ERROR),
                        "404": _answer("not kept (any more)", _ERROR),
                        "503": _answer("the cluster cannot be reached now", _ERROR),
                    }
                    | _DENIED,
                }
            },
            "/participants/{id}/messages": {
                "get": {
                    "summary": "what you would have heard since then",
                    "security": secured,
                    "parameters": [
                        _ID,
                        _SPACE,
                        _DIALECT,
                        _parameter("since", "query", "a timestamp, or `next` of the last answer"),
                        _parameter("id", "query", "only the message with this id: was it accepted?"),
                    ],
                    "responses": {"200": _answer("messages and next"), "400": _answer("bad since", _ERROR)}
                    | _DENIED,
                },
                "post": {
                    "summary": "say something: the same ladder as over WebSocket",
                    "security": secured,
                    "parameters": [_ID, _SPACE, _DIALECT],
                    "requestBody": {"required": True, "content": {"application/json": {"schema": _ENVELOPE}}},
                    "responses": {
                        "200": _answer("accepted: id, status, timestamp"),
                        "400": _answer("not an envelope, or a bad request", _ERROR),
                        "409": _answer("used id, settled proposal, or the invitee exists", _ERROR),
                        "413": _answer("too large", _ERROR),
                        "415": _answer("not application/json", _ERROR),
                        "429": _answer("too fast or too much", _ERROR),
                        "202": _answer("in effect, but not on disk: the journal cannot be written"),
                        "503": _answer(
                            "unavailable, or outcome_unknown: the journal failed meanwhile", _ERROR
                        ),
                    }
                    | _DENIED,
                },
            },
            "/participants/{id}/roster": {
                "get": {
                    "summary": "who is here and which streams are open, page by page",
                    "security": secured,
                    "parameters": [
                        _ID,
                        _SPACE,
                        _DIALECT,
                        _parameter("after", "query", "`next` of the page before"),
                    ],
                    "responses": {
                        "200": _answer("participants, active_streams, and next if there is more"),
                        "400": _answer("bad after", _ERROR),
                        "429": _answer("too fast or too much", _ERROR),
                    }
                    | _DENIED,
                }
            },
            "/admin/participants/{id}/capabilities": {
                "post": {
                    "summary": "change a participant's capabilities",
                    "security": secured,
                    "parameters": [_ID, _SPACE],
                    "requestBody": {
                        "content": {
                            "application/json": {
                                "schema": {
                                    "type": "object",
                                    "properties": {"add": _CAPABILITIES, "remove": _CAPABILITIES},
                                }
                            }
                        }
                    },
                    "responses": {
                        "200": _answer("old and new capabilities"),
                        "400": _answer("bad body", _ERROR),
                        "415": _answer("not application/json", _ERROR),
                    }
                    | _ADMIN_DENIED,
                }
            },
            "/admin/participants/{id}/restore": {
                "post": {
                    "summary": "let a removed participant back in, with a new token",
                    "security": secured,
                    "parameters": [_ID, _SPACE],
                    "responses": {
                        "200": _answer("the token, shown once"),
                        "400": _answer("not removed", _ERROR),
                    }
                    | _ADMIN_DENIED,
                }
            },
            "/admin/participants/{id}/token": {
                "post": {
                    "summary": "give a participant another token",
                    "security": secured,
                    "parameters": [_ID, _SPACE],
                    "requestBody": {
                        "content": {
                            "application/json": {
                                "schema": {"type": "object", "properties": {"keep": {"type": "boolean"}}}
                            }
                        }
                    },
                    "responses": {
                        "200": _answer("the token, shown once"),
                        "400": _answer("bad body", _ERROR),
                        "415": _answer("not application/json", _ERROR),
                    }
                    | _ADMIN_DENIED,
                }
            },
            "/participants/{id}/tokens": {
                "post": {
                    "summary": "a short-lived token with no more than your own",
                    "security": secured,
                    "parameters": [_ID, _SPACE],
                    "requestBody": _MINT_BODY,
                    "responses": {
                        "201": _answer("the token, shown once, and for how many seconds"),
                        "400": _answer("bad body, or too long a time", _ERROR),
                        "401": _answer("no token", _ERROR),
                        "415": _answer("not application/json", _ERROR),
                        "429": _answer("more than gateway.minted_tokens_per_minute: see Retry-After", _ERROR),
                    }
                    | _DENIED,
                }
            },
            "/admin/participants/{id}/tokens": {
                "post": {
                    "summary": "a short-lived token for a participant",
                    "security": secured,
                    "parameters": [_ID, _SPACE],
                    "requestBody": _MINT_BODY,
                    "responses": {
                        "201": _answer("the token, shown once, and for how many seconds"),
                        "400": _answer("bad body, or too long a time", _ERROR),
                        "415": _answer("not application/json", _ERROR),
                        "429": _answer("more than gateway.minted_tokens_per_minute: see Retry-After", _ERROR),
                    }
                    | _ADMIN_DENIED,
                }
            },
            "/admin/cluster": {
                "get": {
                    "summary": "the gateways of this cluster, their log, and what is wrong",
                    "security": secured,
                    "parameters": [
                        _parameter("compare", "query", "true: hash all states now, at one message")
                    ],
                    "responses": {
                        "200": _answer("gateways, nats and problems, which is empty while all is well"),
                        "400": _answer("compare is neither true nor false", _ERROR),
                        "403": _answer("not an administrator", _ERROR),
                        "404": _answer("this gateway is in no cluster", _ERROR),
                    },
                }
            },
            "/admin/cluster/spaces/{space}": {
                "delete": {
                    "summary": "let the cluster forget a space that no gateway has in its file",
                    "security": secured,
                    "parameters": [_parameter("space", "path", "the name of the space")],
                    "responses": {
                        "200": _answer("dropped, and which gateways are gone and could not be asked"),
                        "400": _answer("a gateway has it or did not answer, or there is none", _ERROR),
                        "403": _answer("not an administrator", _ERROR),
                        "404": _answer("this gateway is in no cluster", _ERROR),
                        "503": _answer("the cluster cannot be reached now", _ERROR),
                    },
                }
            },
            "/admin/participants/{id}/sign-out": {
                "post": {
                    "summary": "end all that a participant has signed in for, and its short-lived tokens",
                    "security": secured,
                    "parameters": [_ID, _SPACE],
                    "responses": {
                        "200": _answer("signed out"),
                        "400": _answer("has not signed in", _ERROR),
                    }
                    | _ADMIN_DENIED,
                }
            },
            "/admin/tokens": {
                "get": {
                    "summary": "what lets participants in, by the beginning of the hash",
                    "security": secured,
                    "parameters": [_SPACE, _parameter("participant", "query", "only those of this one")],
                    "responses": {
                        "200": _answer(
                            "tokens, not the tokens themselves; absent: who signed in and has none now"
                        )
                    }
                    | _ADMIN_DENIED,
                }
            },
            "/admin/tokens/{id}": {
                "delete": {
                    "summary": "end one token, with its connections",
                    "security": secured,
                    "parameters": [_parameter("id", "path", "as the list shows it"), _SPACE],
                    "responses": {
                        "200": _answer("revoked"),
                        "400": _answer("too short an id", _ERROR),
                    }
                    | _ADMIN_DENIED,
                }
            },
            "/admin/sign-in-rules": {
                "get": {
                    "summary": "which rules give whom what: groups, clients and other claims of a provider",
                    "security": secured,
                    "parameters": [_SPACE],
                    "responses": {"200": _answer("providers, each with the rules about this space")}
                    | _ADMIN_DENIED,
                }
            },
            "/admin/sign-ins": {
                "get": {
                    "summary": "who signed in, was refused or signed out, newest first, page by page",
                    "security": secured,
                    "parameters": [
                        _SPACE,
                        _parameter("before", "query", "what `before` was in an earlier answer"),
                        _parameter("limit", "query", "how many at most"),
                        _parameter("event", "query", "only this, such as refused or signed_in"),
                    ],
                    "responses": {
                        "200": _answer("sign_ins, and before, which is null at the end of the journal"),
                        "400": _answer("bad before or limit", _ERROR),
                    }
                    | _ADMIN_DENIED,
                }
            },
            "/admin/connections": {
                "get": {
                    "summary": "who is connected",
                    "security": secured,
                    "responses": {
                        "200": _answer("connections"),
                        "403": _answer("not an administrator", _ERROR),
                    },
                }
            },
        },
    }

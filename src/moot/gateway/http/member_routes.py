"""What members do over HTTP: post, poll, read the roster and proposals, make short-lived tokens (D-40, D-96).

The ladder is the space's own; here its words become statuses.
"""

from __future__ import annotations

import time
from typing import Final

import orjson
from starlette.requests import Request
from starlette.responses import Response

from moot.config.gateway_config import GatewayConfig
from moot.errors import InvalidEnvelope, InvalidRequest
from moot.gateway.access import AccessDenied, TokenIdentity, TokenQuestion
from moot.gateway.hosting.delivery import encode_entry, id_of
from moot.gateway.hosting.input_applier import check_token
from moot.gateway.hosting.space_host import SpaceHost
from moot.gateway.http.http_replies import (
    accepted,
    body_of,
    check_json,
    denied,
    json_response,
    moment,
    object_of,
    refused,
)
from moot.gateway.http.request_identity import RequestIdentity
from moot.gateway.sign_in.short_lived_tokens import MAX_TOKEN_REQUEST_BYTES, mint_token, read_token_request
from moot.protocol import strict_json
from moot.protocol.dialects import DIALECTS
from moot.protocol.dialects.translation import show_capabilities
from moot.protocol.envelope import DialectName
from moot.protocol.latest_dict import LatestDict
from moot.protocol.operation import Json
from moot.space.acts.proposal_listing import ProposalReader, find_proposals, list_proposals
from moot.space.config import Name
from moot.space.effects import Reply
from moot.space.members.listing import describe_page, page_bytes
from moot.space.members.member import Options, Session
from moot.space.members.send_rate import SendRate, SendRateLimiter

# Participants whose rate of reading is remembered, the latest ones.
_MAX_KEYS: Final = 10_000


class MemberRoutes:
    """The endpoints of members."""

    def __init__(self, identity: RequestIdentity, config: GatewayConfig) -> None:
        self._identity = identity
        self._config = config
        self._reads = _ReadLimiter()
        identity.spaces.answer("spaces", self._describe_space)

    async def spaces(self, request: Request) -> Response:
        """The spaces that the caller's token opens."""
        return json_response(200, {"spaces": await self._identity.describe_everywhere(request, "spaces")})

    async def _describe_space(self, each: TokenIdentity, question: TokenQuestion) -> Json:
        dialects: list[Json] = [*sorted(each.host.space.state.config.dialects)]
        member = each.host.space.state.roster.members.get(Name(each.name))
        # Whether it has a connection now, at any gateway: who stands by for an exclusive member asks.
        connected = member is not None and any(
            not session.options.injected for session in member.sessions.values()
        )
        facts: dict[str, Json] = {"name": each.host.name, "participant": each.name}
        facts |= {"dialects": dialects, "connected": connected}
        facts["chat_link_above"] = each.host.space.state.config.chat_link_above
        if self._identity.also_administers(question, each.host):
            facts["administrator"] = True
        if (shard := self._identity.shard_of(each.host)) is not None:
            facts["shard"] = shard
        return facts

    async def messages(self, request: Request) -> Response:
        identity = await self._identity.member(request)
        if request.method == "POST":
            return await self._post(request, identity)
        # HEAD as well: what asks only for headers changes nothing.
        return self._poll(request, identity)

    async def proposals(self, request: Request) -> Response:
        """D-96: what is open, and what came of approved calls is not known of; a page at a time."""
        host, reader = await self._proposal_reader(request)
        try:
            after = int(request.query_params.get("after", "0"))
        except ValueError:
            after = -1
        if after < 0:
            raise InvalidRequest("after is the number that `next` said before")
        page = list_proposals(host.space.state, reader, after=after, now=host.journaled.clock())
        return self._reads.charge(host, reader.member.name, json_response(200, page.payload))

    async def proposal(self, request: Request) -> Response:
        """D-96: one proposal by its id, open or settled, and what came of it."""
        host, reader = await self._proposal_reader(request)
        id = request.path_params["id"]
        page = find_proposals(host.space.state, reader, [id], now=host.journaled.clock())
        if page.payload["not_known"]:
            return json_response(
                404,
                {"error": "proposal_not_found", "message": f"no proposal {id!r} is known here (any more)"},
            )
        return self._reads.charge(host, reader.member.name, json_response(200, page.payload["proposals"][0]))

    async def roster(self, request: Request) -> Response:
        """Who is here and which streams are open, page by page, for whoever may join as this participant."""
        identity = await self._identity.member(request)
        dialect = dialect_of(request, b"")
        self._reads.check(identity.host, identity.name)
        options = Options(injected=True, token=identity.token)
        page = _describe_roster(
            identity.host, identity.name, dialect, options, request.query_params.get("after")
        )
        return self._reads.charge(identity.host, identity.name, json_response(200, page))

    async def _post(self, request: Request, identity: TokenIdentity) -> Response:
        if not self._config.http.inject:
            return denied(AccessDenied(404, "posting is turned off here: connect a WebSocket"))
        check_json(request)
        host = identity.host
        # Twice, so that an envelope a bit too large is told by the ladder and not by the parser.
        most = 2 * host.space.state.limits.envelope.max_bytes
        body = await body_of(request, most)
        if body is None:
            return denied(AccessDenied(413, f"a body has at most {most} bytes"))
        options = Options(injected=True, token=identity.token)
        host.order.check_rate_ahead(identity.name, len(body))
        strict_json.check_containers(body, host.space.state.limits.envelope.max_containers)
        outcome = await host.post(identity.name, dialect_of(request, body), body, options)
        if isinstance(outcome, Reply):
            payload = dict(outcome.notice.payload)
            shown = orjson.loads(DIALECTS["mew"].encode_notice(outcome.notice) or b"{}").get(
                "payload", payload
            )
            code = str(payload.get("error"))
            return refused(code, "", shown, str(payload.get("attempted_kind", "")), payload.get("detail"))
        return json_response(*accepted(outcome))

    def _poll(self, request: Request, identity: TokenIdentity) -> Response:
        if not self._config.http.poll:
            return denied(AccessDenied(404, "polling is turned off here: connect a WebSocket"))
        since = moment(request.query_params.get("since"))
        if since > identity.host.journaled.clock():
            # No cursor of ours, but a time by a wall clock that was set since the start.
            since -= max(0.0, identity.host.journaled.wall_ahead_seconds)
        dialect = dialect_of(request, b"")
        self._reads.check(identity.host, identity.name)
        history = identity.host.delivery.history
        history.polled_at = identity.host.journaled.clock()
        after = max(since, history.visible_since(identity.name))
        is_whole = history.is_whole(after)
        if since and not is_whole:
            return self._reads.charge(identity.host, identity.name, _gone(identity.host))
        wanted = request.query_params.get("id")
        messages = []
        latest = after
        for entry in history.since(after, identity.name):
            if wanted is not None and id_of(entry) != wanted:
                continue
            raw = encode_entry(entry, dialect)
            if raw is not None:
                messages.append(orjson.Fragment(raw))
            latest = entry.at
        if wanted is None:
            identity.host.note_poll(identity.name)
        body: dict[str, Json] = {"messages": messages, "next": repr(latest)}
        if not is_whole:
            body["gap"] = True
        return self._reads.charge(identity.host, identity.name, json_response(200, body))

    async def mint_own(self, request: Request) -> Response:
        """A short-lived token with no more than the caller's own, shown once."""
        identity = await self._identity.member(request)
        # Before the body is read: whoever asks in a loop is told cheaply.
        self._identity.check_mint(identity.host, identity.name, ("member", identity.name))
        check_json(request)
        seconds, only = read_token_request(await object_of(request, MAX_TOKEN_REQUEST_BYTES))
        # Again: it may be void by the time that the whole body is here.
        identity = await self._identity.member(request)
        made = await mint_token(
            identity.host,
            identity.name,
            identity.name,
            seconds=seconds,
            only=only,
            max_seconds=self._config.max_minted_token_seconds,
            own_token=identity.token,
        )
        return json_response(201, made)

    async def _proposal_reader(self, request: Request) -> tuple[SpaceHost, ProposalReader]:
        identity = await self._identity.in_space(request)
        member = identity.host.space.state.roster.find(identity.name)
        self._reads.check(identity.host, identity.name)
        return identity.host, ProposalReader(member, dialect_of(request, b""), whole=True)


def _gone(host: SpaceHost) -> Response:
    """Messages since then may be with another gateway alone; and what to do."""
    message = (
        f"not all messages since then can be polled here: GET /spaces/{host.name}/history has older ones; "
        "go on polling with since=next"
    )
    next = repr(host.delivery.history.known_since)
    return json_response(410, {"error": "gone", "message": message, "next": next})


def _describe_roster(
    host: SpaceHost, who: str, dialect: DialectName, options: Options, after: str | None
) -> dict[str, Json]:
    """A page of who is here; it changes nothing, so that nothing of it is journaled. Raises Refused."""
    state, now = host.space.state, host.journaled.clock()
    member = state.roster.find(who)
    options = check_token(state, who, options, now)
    asking = Session(host.order.new_session(), member, dialect, options, 0, state.token_rights(options.token))
    member.send_limiter.check_rate(0, now, state.send_rate)
    page = describe_page(state, asking, after)
    member.send_limiter.charge(page_bytes(state, page), now, state.send_rate)
    shown: dict[str, Json] = show_capabilities(page, dialect)
    return shown


def dialect_of(request: Request, body: bytes) -> DialectName:
    """dialects.md section 1: MEW, unless the query or the body's `protocol` says otherwise."""
    asked = request.query_params.get("dialect")
    if asked is not None:
        if asked not in DIALECTS:
            raise InvalidEnvelope(f"unknown dialect: use one of {', '.join(DIALECTS)}")
        return DIALECTS[asked].name  # type: ignore[index]  # looked up just now
    return "mcpx" if _protocol(body) == "mcpx/v0.1" else "mew"


def _protocol(body: bytes) -> Json:
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return fields.get("protocol") if isinstance(fields, dict) else None


class _ReadLimiter:
    """How much a member may read over HTTP: as many requests and bytes a second as it may send.

    Polls, pages of proposals and of the roster are made for whoever asks, up to megabytes at a time. Without
    a limit, one member that asks in a loop on many connections keeps the event loop from all others.
    """

    def __init__(self) -> None:
        self._limiters: LatestDict[tuple[str, str], SendRateLimiter] = LatestDict(_MAX_KEYS)

    def check(self, host: SpaceHost, member: str) -> None:
        """Count a request; raises RateLimited if it comes too early after those before."""
        self._limiter(host, member).check_rate(0, time.monotonic(), SendRate.of(host.space.state.limits))

    def charge(self, host: SpaceHost, member: str, response: Response) -> Response:
        """Count the bytes of an answer, which is given back: the next one has to wait for them."""
        rate = SendRate.of(host.space.state.limits)
        self._limiter(host, member).charge(len(response.body), time.monotonic(), rate)
        return response

    def _limiter(self, host: SpaceHost, member: str) -> SendRateLimiter:
        key = host.name, member
        # Put in anew: the one that was not used for longest is the first to go.
        limiter = self._limiters[key] = self._limiters.get(key) or SendRateLimiter()
        return limiter

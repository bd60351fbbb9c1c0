"""What administrators do over HTTP: rights, tokens, connections, the state of a cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from starlette.requests import Request
from starlette.responses import Response

from moot.errors import InvalidOperation, InvalidRequest
from moot.gateway.access import AccessDenied
from moot.gateway.created_spaces import End, SpaceOperations
from moot.gateway.http.history_routes import before_of, limit_of, settle
from moot.gateway.http.http_replies import (
    RequestRefused,
    check_json,
    in_effect,
    json_response,
    object_of,
)
from moot.gateway.http.request_identity import RequestIdentity
from moot.gateway.other_spaces import AskedSpaces
from moot.gateway.sign_in.short_lived_tokens import MAX_TOKEN_REQUEST_BYTES, mint_token, read_token_request
from moot.gateway.sign_in.sign_in_audit import EVENTS, read_sign_ins
from moot.gateway.sign_in.sign_in_service import SignInService
from moot.gateway.sign_in.token_list import find_token, list_absent, list_tokens
from moot.gateway.sign_in.token_rotation import TokenRotation
from moot.protocol.envelope import DialectName
from moot.protocol.operation import Json
from moot.protocol.patterns import read_capabilities
from moot.space.tokens.temporary_tokens import MAX_LIFE_SECONDS

# Rights of one member, of which a large envelope holds the most.
_MAX_BODY_BYTES: Final = 2 << 20
# Two names of spaces.
_MAX_NAME_BYTES: Final = 1_024
_MAX_SHARD_DIGITS: Final = 4


class ClusterOperations(Protocol):
    """What operators ask of the cluster that a gateway is one of."""

    async def report(self, *, compare: bool) -> dict[str, Json]:
        """Its state."""
        ...

    async def drop_space(self, name: str, by: str) -> list[str]:
        """Let it forget a space that no gateway has in its file; who could not be asked. Raises Refused."""
        ...

    async def move(self, index: int, wanted: str | None, *, serve: bool) -> dict[str, Json]:
        """Let the asked gateway begin or end to serve one shard, if it is the wanted one. Raises Refused."""
        ...


class AdminRoutes:
    """The endpoints under `/admin`."""

    def __init__(
        self,
        identity: RequestIdentity,
        rotation: TokenRotation,
        *,
        connections: Callable[[], list[dict[str, Json]]],
        cluster: ClusterOperations | None,
        spaces: SpaceOperations,
        max_minted_token_seconds: float,
        sign_in: SignInService | None,
    ) -> None:
        self._identity = identity
        self._rotation = rotation
        self._connections = connections
        self._cluster = cluster
        self._spaces = spaces
        self._max_minted_token_seconds = max_minted_token_seconds
        self._sign_in = sign_in
        self._audit_turn = asyncio.Lock()
        identity.others.answer("connections", self._answer_connections)
        identity.others.answer("all_spaces", self._answer_spaces)

    async def capabilities(self, request: Request) -> Response:
        self._identity.administered(request)
        check_json(request)
        body = await object_of(request, _MAX_BODY_BYTES)
        host, admin = self._identity.administered(request)
        unknown = set(body) - {"add", "remove"}
        if unknown:
            raise InvalidRequest(f"unknown: {', '.join(sorted(unknown))}; give add and remove")
        if not all(isinstance(items, list) for items in body.values()):
            raise InvalidRequest("add and remove are lists of capabilities")
        place: DialectName = "mcpx" if _all_strings(body) else "mew"
        add = read_capabilities(body.get("add", []), place=place)
        remove = read_capabilities(body.get("remove", []), place=place)
        done = await host.rights.change_capabilities(request.path_params["id"], add, remove, admin)
        return json_response(*in_effect(done, done.results[0].fields))

    async def restore(self, request: Request) -> Response:
        host, admin = self._identity.administered(request)
        return json_response(200, await self._rotation.restore(host, request.path_params["id"], admin))

    async def rotate(self, request: Request) -> Response:
        """Give a participant another token, shown once; the earlier ones are void unless `keep` is true."""
        self._identity.administered(request)
        check_json(request)
        body = await object_of(request, _MAX_BODY_BYTES)
        # Again: an administrator's token may be gone by the time that the whole body is here.
        host, admin = self._identity.administered(request)
        if set(body) - {"keep"} or not isinstance(body.get("keep", False), bool):
            raise InvalidRequest('the body is {} or {"keep": true}')
        who, keep = request.path_params["id"], body.get("keep", False)
        return json_response(200, await self._rotation.rotate(host, who, admin, keep=keep))

    async def mint(self, request: Request) -> Response:
        """Give a participant a short-lived token, shown once."""
        host, admin = self._identity.administered(request)
        self._identity.check_mint(host, request.path_params["id"], ("admin", admin))
        check_json(request)
        seconds, only = read_token_request(await object_of(request, MAX_TOKEN_REQUEST_BYTES))
        host, admin = self._identity.administered(request)
        most, who = self._max_minted_token_seconds, request.path_params["id"]
        maker = self._identity.account_of(request)
        made = await mint_token(host, who, admin, seconds=seconds, only=only, max_seconds=most, maker=maker)
        return json_response(201, made)

    async def tokens(self, request: Request) -> Response:
        """What lets members of a space in; never a token itself."""
        host, _ = self._identity.administered(request)
        who = request.query_params.get("participant")
        return json_response(200, {"tokens": list_tokens(host, who), "absent": list_absent(host, who)})

    async def revoke_token(self, request: Request) -> Response:
        """End one token of a space, with its connections."""
        host, admin = self._identity.administered(request)
        token_hash = find_token(host, request.path_params["id"])
        temporary = host.space.state.temporary_tokens.get(token_hash)
        is_signed_in = temporary is not None and temporary.source == "sign_in"
        # A token of a provider would come in again: by the narrowest name that it has, it is void.
        keys = temporary.keys[-1:] if temporary is not None and is_signed_in else ()
        before = temporary.issued_at if temporary is not None else 0.0
        await host.rights.sign_out(
            keys, admin, issued_before=before, keep_seconds=MAX_LIFE_SECONDS, tokens=[token_hash]
        )
        return json_response(200, {"status": "revoked"})

    async def sign_out(self, request: Request) -> Response:
        """End all that a member has signed in for, and every token made for it: who leaves is out.

        Of a participant of the configuration, the tokens that it names stay.
        """
        host, admin = self._identity.administered(request)
        member = host.space.state.roster.find(request.path_params["id"])
        temporary = host.space.state.temporary_tokens.of(member.name)
        keys = {token.keys[0] for token in temporary if token.source == "sign_in"}
        keys |= {member.subject} if member.subject else set()
        tokens = [token.hash for token in temporary]
        if member.subject is not None:
            # An administrator made these for somebody who signs in.
            tokens += member.credentials
        if not keys and not tokens:
            raise InvalidOperation(f"{member.name} has not signed in: replace its token instead")
        issued = [token.issued_at for token in temporary if token.source == "sign_in"]
        issued += [each.issued_at for each in member.signed_in.values()]
        await host.rights.sign_out(
            sorted(keys),
            admin,
            # The clock of the provider may be ahead.
            issued_before=max([time.time(), *issued]),
            keep_seconds=MAX_LIFE_SECONDS,
            tokens=tokens,
        )
        return json_response(200, {"participant_id": member.name, "status": "signed out"})

    async def sign_in_rules(self, request: Request) -> Response:
        """Which rules give whom what in a space: groups, clients and other claims, and their capabilities."""
        host, _ = self._identity.administered(request)
        providers = [] if self._sign_in is None else self._sign_in.describe_rules(host.name)
        return json_response(200, {"providers": providers})

    async def sign_ins(self, request: Request) -> Response:
        """A page of who signed in, who was refused and whose access ended, newest first."""
        host, _ = self._identity.administered(request)
        before, limit = before_of(request), limit_of(request)
        wanted = request.query_params.get("event")
        if wanted is not None and wanted not in EVENTS:
            raise InvalidRequest(f"event is one of {', '.join(sorted(EVENTS))}")
        if not host.journal.is_written:
            return json_response(200, {"sign_ins": [], "before": None, "is_kept": False})
        if before is None:
            await settle(host)
        # One at a time: whoever is connected has priority.
        async with self._audit_turn:
            by_time, folder = host.order.is_shared, host.journaled.folder
            page = await asyncio.to_thread(
                read_sign_ins, folder, before, limit, by_time=by_time, wanted=wanted
            )
        # It may have taken a while.
        self._identity.administered(request)
        return json_response(200, {"sign_ins": page.events, "before": page.before, "is_kept": True})

    async def connections(self, request: Request) -> Response:
        """MEW 10.1: what the gateway keeps of each connection."""
        await self._identity.administrator_everywhere(request)
        self._identity.check_current()
        found = self._connections()
        others = await self._identity.others.ask("connections", None)
        # It may have taken a while.
        await self._identity.administrator_everywhere(request)
        return json_response(200, {"connections": found + [each for rows in others for each in rows]})

    async def _answer_connections(self, _facts: Json, asked: AskedSpaces) -> Json:
        return [each for each in self._connections() if asked.include(each["space"])]

    async def cluster(self, request: Request) -> Response:
        """The gateways of the cluster, the log, and what is wrong; with `compare=true` their states, too."""
        cluster, _ = await self._operated(request)
        compare = request.query_params.get("compare", "false")
        if compare not in ("true", "false"):
            raise InvalidRequest("compare is true or false")
        found = await cluster.report(compare=compare == "true")
        # It may have taken a while.
        await self._operated(request)
        return json_response(200, found)

    async def drop_space(self, request: Request) -> Response:
        """Let the cluster forget a space that no gateway has in its file."""
        cluster, admin = await self._operated(request)
        name = request.path_params["space"]
        unasked = await cluster.drop_space(name, admin)
        return json_response(200, {"space": name, "status": "dropped", "not_asked": unasked})

    async def serve_shard(self, request: Request) -> Response:
        """Let this gateway serve a shard."""
        return await self._move(request, serve=True)

    async def leave_shard(self, request: Request) -> Response:
        """Let it serve a shard no longer: connections to its spaces end, and their members go elsewhere."""
        return await self._move(request, serve=False)

    async def _move(self, request: Request, *, serve: bool) -> Response:
        cluster, _ = await self._operated(request)
        given, wanted = request.path_params["shard"], request.query_params.get("gateway")
        if not (given.isascii() and given.isdigit() and len(given) < _MAX_SHARD_DIGITS):
            raise InvalidRequest("a shard is a number")
        return json_response(200, await cluster.move(int(given), wanted, serve=serve))

    async def spaces(self, request: Request) -> Response:
        """All spaces of this gateway or its cluster, those that have ended too."""
        await self._identity.administrator_everywhere(request)
        self._identity.check_current()
        found = self._spaces.describe_spaces()
        for each in await self._identity.others.ask("all_spaces", None):
            known = {row["name"] for row in found}
            found += [row for row in each if row["name"] not in known]
        # It may have taken a while.
        await self._identity.administrator_everywhere(request)
        return json_response(200, {"spaces": found})

    async def _answer_spaces(self, _facts: Json, asked: AskedSpaces) -> Json:
        return [each for each in self._spaces.describe_spaces() if asked.include(each["name"])]

    async def create_space(self, request: Request) -> Response:
        """Make a space after one of the configuration, while the gateway runs."""
        await self._identity.administrator_everywhere(request)
        check_json(request)
        body = await object_of(request, _MAX_NAME_BYTES)
        # Again: an administrator's token may be gone by the time that the whole body is here.
        admin = await self._identity.administrator_everywhere(request)
        name, like = body.get("name"), body.get("like")
        if set(body) - {"name", "like"} or not isinstance(name, str) or not isinstance(like, str | None):
            raise InvalidRequest(
                'the body is {"name": NAME}, with "like": SPACE if not after the default one'
            )
        made_after = await self._spaces.create_space(name, like, admin)
        return json_response(201, {"space": name, "like": made_after})

    async def archive_space(self, request: Request) -> Response:
        """Close a space that was made while the gateway ran, and keep its journal."""
        return await self._end_space(request, "archived")

    async def delete_space(self, request: Request) -> Response:
        """Close one, and remove all that is kept of it."""
        return await self._end_space(request, "deleted")

    async def _end_space(self, request: Request, how: End) -> Response:
        admin, name = await self._identity.administrator_everywhere(request), request.path_params["space"]
        await self._spaces.end_space(name, how, admin)
        return json_response(200, {"space": name, "status": how})

    async def _operated(self, request: Request) -> tuple[ClusterOperations, str]:
        """The cluster, for an administrator of the whole gateway; raises RequestRefused."""
        admin = await self._identity.administrator_everywhere(request)
        if self._cluster is None:
            raise RequestRefused(
                AccessDenied(404, "this gateway is alone: gateway.cluster is not configured")
            )
        return self._cluster, admin


def _all_strings(body: Mapping[str, Json]) -> bool:
    items = [*body.get("add", []), *body.get("remove", [])]
    return bool(items) and all(isinstance(item, str) for item in items)

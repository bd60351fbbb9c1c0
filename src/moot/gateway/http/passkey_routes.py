"""Passkeys over HTTP: `/passkeys` for their owners, `/admin/passkeys` for operators."""

from __future__ import annotations

import secrets
import time
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from moot.config.gateway_config import is_loopback
from moot.errors import InvalidRequest, OutcomeUnknown, PasskeyInvalid, Refused, Unauthorized
from moot.gateway.access import AccessDenied, TokenIdentity, TokenQuestion
from moot.gateway.http.http_replies import (
    RequestRefused,
    check_json,
    denied,
    in_effect,
    json_response,
    object_of,
)
from moot.gateway.http.request_identity import RequestIdentity, address_of
from moot.gateway.sign_in.passkey_service import (
    KeyHolder,
    PasskeyService,
    Ticket,
    describe_keys,
    relying_party,
)
from moot.gateway.sign_in.sign_in_links import VALID_SECONDS, SignInLinks
from moot.protocol.operation import Json
from moot.protocol.patterns import covered_by
from moot.space.config import Name
from moot.space.inputs.passkey_changes import PasskeyInput
from moot.space.tokens.passkey_proof import CHALLENGE_SECONDS, read_assertion

# An attestation with certificates, generously.
_MAX_BODY_BYTES: Final = 32_768
# What a link of an operator holds, before its JSON: no token begins like this.
_LINK: Final = "passkey "


class PasskeyRoutes:
    """Adding, listing and removing passkeys, signing in with one, and what a decision signs."""

    def __init__(
        self,
        identity: RequestIdentity,
        service: PasskeyService,
        links: SignInLinks,
        *,
        public_url: str | None,
    ) -> None:
        self._identity = identity
        self._service = service
        self._links = links
        self._public_url = public_url
        identity.spaces.answer("passkeys", self._describe_keys)
        identity.spaces.answer("passkey_holders", self._describe_holder)
        identity.spaces.answer("passkey_removable", self._check_removable)
        identity.spaces.answer("passkey_removal", self._remove_key)

    async def own(self, request: Request) -> Response:
        """The caller's passkeys in all spaces that the token opens."""
        found = await self._identity.describe_everywhere(request, "passkeys")
        keys = [key for each in found for key in each]
        try:
            relying_party(request.headers.get("origin") or _own_origin(request), self._public_url)
            why: str | None = None
        except InvalidRequest as refusal:
            why = refusal.message
        return json_response(200, {"passkeys": keys, "refused": why})

    async def options(self, request: Request) -> Response:
        """What the browser is asked for a new passkey: with a token, or with the code of a link."""
        check_json(request)
        body = await object_of(request, _MAX_BODY_BYTES)
        party = relying_party(request.headers.get("origin"), self._public_url)
        code = body.get("code")
        by_link, by = code is not None, ""
        known: list[str] = []
        if by_link:
            self._identity.check_current()
            holders, by = await self._read_link(code, request)
        else:
            found = await self._identity.describe_everywhere(request, "passkey_holders")
            holders = [msgspec.convert(each["holder"], KeyHolder) for each in found]
            known = [id for each in found for id in each["keys"]]
        text = await self._service.issue(
            Ticket(
                use="add",
                relying_party=party,
                expires=time.time() + (VALID_SECONDS if by_link else CHALLENGE_SECONDS),
                nonce=secrets.token_urlsafe(16),
                holders=tuple(holders),
                by_link=by_link,
                by=by,
            )
        )
        if by_link and await self._links.redeem(str(code)) is None:
            # Last: what fails before that leaves it valid. Somebody else was faster.
            raise self._refuse_link(request)
        answer: dict[str, Json] = {"ticket": text, "rp_id": party.id, "participant": holders[0].name}
        answer |= {"spaces": [each.space for each in holders], "credentials": [*dict.fromkeys(known)]}
        return json_response(200, answer)

    async def _describe_keys(self, who: TokenIdentity, _question: TokenQuestion) -> Json:
        return describe_keys(who.host, [Name(who.name)])

    async def _describe_holder(self, who: TokenIdentity, _question: TokenQuestion) -> Json:
        """Whose a new passkey will be, and which ones they have. The space knows how they came in."""
        await who.wait_admitted()
        keys = [key.id for key in who.host.space.state.passkeys.of(Name(who.name))]
        return {"holder": msgspec.to_builtins(_holder_of(who)), "keys": keys}

    async def _check_removable(self, who: TokenIdentity, question: TokenQuestion) -> Json:
        """Whether a passkey is theirs here; raises Unauthorized where they may not remove it."""
        await who.wait_admitted()
        if question.more not in [key.id for key in who.host.space.state.passkeys.of(Name(who.name))]:
            return False
        _check_whole(who)
        return True

    async def _remove_key(self, who: TokenIdentity, question: TokenQuestion) -> Json:
        """Remove a passkey: the status of that, and what is answered."""
        id = question.more
        if not await self._check_removable(who, question):
            return 404, {"error": "not_found", "message": "you have no such passkey"}
        told = PasskeyInput(ids=(id,))
        done = await who.host.rights.change_passkeys("passkey_remove", told, who.name, who.name)
        return in_effect(done, {"id": id, "removed": True})

    async def _read_link(self, code: Json, request: Request) -> tuple[list[KeyHolder], str]:
        kept = await self._links.read(code) if isinstance(code, str) else None
        if kept is None or not kept.startswith(_LINK):
            raise self._refuse_link(request)
        by, holder = msgspec.json.decode(kept[len(_LINK) :], type=tuple[str, KeyHolder])
        return [holder], by

    def _refuse_link(self, request: Request) -> RequestRefused:
        wrong = AccessDenied(403, "this link was used already, or is too old: ask for a new one")
        return RequestRefused(self._identity.refuse_token(wrong, request))

    async def add(self, request: Request) -> Response:
        """A new passkey, confirmed with an earlier one where there is one."""
        check_json(request)
        body = await object_of(request, _MAX_BODY_BYTES)
        ticket = await self._service.read(body.get("ticket"), "add", time.time())
        proof = None if body.get("proof") is None else read_assertion(body["proof"])
        text, credential = str(body["ticket"]), body.get("credential")
        spaces = await self._service.add(ticket, text, credential, body.get("name", ""), proof)
        return json_response(201, {"spaces": [*spaces]})

    async def remove(self, request: Request) -> Response:
        """Remove one of the caller's passkeys, in all spaces that the token opens."""
        id, everywhere = request.path_params["id"], self._identity.describe_everywhere
        # First whether it can be done in all of them, so that no refusal comes half-way.
        spaces = sum(await everywhere(request, "passkey_removable", more=id))
        try:
            answers = await everywhere(request, "passkey_removal", more=id)
        except Refused as refusal:
            if spaces < 2:
                raise
            raise OutcomeUnknown(
                f"{refusal.message}. The passkey may be removed in some of your spaces and not in others: "
                "look at the list of your passkeys, and remove it again"
            ) from None
        # Of several, one that tells of a removal.
        status, body = min(answers, key=lambda answer: answer[0] == 404)
        return json_response(status, body)

    async def sign_in_options(self, request: Request) -> Response:
        """What the browser is asked for to sign in. For everybody: it says nothing of anybody."""
        check_json(request)
        party = relying_party(request.headers.get("origin"), self._public_url)
        text = await self._service.issue(
            Ticket(
                use="sign_in",
                relying_party=party,
                expires=time.time() + CHALLENGE_SECONDS,
                nonce=secrets.token_urlsafe(16),
            )
        )
        return json_response(200, {"ticket": text, "rp_id": party.id})

    async def sign_in(self, request: Request) -> Response:
        """A token for the owner of a passkey."""
        check_json(request)
        body = await object_of(request, _MAX_BODY_BYTES)
        try:
            await self._service.read(body.get("ticket"), "sign_in", time.time())
            assertion = read_assertion(body.get("assertion"))
            if self._identity.spaces.asks_nobody(address_of(request)):
                raise Unauthorized("too many wrong passkeys: try again later")
            return json_response(200, await self._service.sign_in(str(body["ticket"]), assertion))
        except (PasskeyInvalid, Unauthorized) as refusal:
            # Counted as wrong tokens are.
            wrong = AccessDenied(403, refusal.message)
            return denied(self._identity.refuse_token(wrong, request))

    async def decision(self, request: Request) -> Response:
        """What the caller signs to approve a proposal of a space."""
        who = await self._identity.in_space(request)
        check_json(request)
        body = await object_of(request, _MAX_BODY_BYTES)
        proposal = body.get("proposal_id")
        if not isinstance(proposal, str):
            raise InvalidRequest('the body is {"proposal_id": "…"}')
        return json_response(200, await self._service.decision(who.host, who.name, proposal))

    # For operators

    async def of_space(self, request: Request) -> Response:
        """The passkeys of a space, or of one participant in it."""
        host, _ = self._identity.administered(request)
        wanted = request.query_params.get("participant")
        names = [member.name for member in host.space.state.roster if wanted in (None, member.name)]
        return json_response(200, {"passkeys": [*describe_keys(host, names)]})

    async def revoke(self, request: Request) -> Response:
        """Remove a passkey of somebody: of a device that was lost."""
        host, admin = self._identity.administered(request)
        key = host.space.state.passkeys.by_id.get(request.path_params["id"])
        if key is None:
            return json_response(404, {"error": "not_found", "message": "no such passkey in this space"})
        told = PasskeyInput(ids=(key.id,))
        done = await host.rights.change_passkeys("passkey_remove", told, key.member, admin)
        answer: dict[str, Json] = {"id": key.id, "participant": key.member, "removed": True}
        return json_response(*in_effect(done, answer))

    async def link(self, request: Request) -> Response:
        """A link by which a participant adds a passkey, once and for minutes."""
        host, admin = self._identity.administered(request)
        member = host.space.state.roster.find(request.path_params["id"])
        holder = KeyHolder(host.name, member.name, signs_in=member.subject is None)
        code = await self._links.create(_LINK + msgspec.json.encode((admin, holder)).decode())
        page = self._public_url or _own_origin(request)
        answer: dict[str, Json] = {"participant": member.name, "valid_seconds": VALID_SECONDS}
        return json_response(201, answer | {"code": code, "address": f"{page}/#passkey={code}"})


def _own_origin(request: Request) -> str:
    """The gateway's address as its caller knows it; by its name where it is this machine's."""
    host = request.headers.get("host", "")
    name, _, port = host.rpartition(":")
    if name and is_loopback(name.strip("[]")):
        host = f"localhost:{port}"
    return f"{request.url.scheme}://{host}"


def _holder_of(identity: TokenIdentity) -> KeyHolder:
    """Whose a new passkey will be; raises Unauthorized for a token that stands for less than its owner."""
    token = _check_whole(identity)
    known = identity.host.space.state.temporary_tokens.get(token)
    if known is not None and known.source == "minted" and not known.passkey:
        raise Unauthorized(
            "this sign-in ends by itself, and a passkey would outlast it: sign in with your own token, or"
            " ask your operator for a link"
        )
    signs_in = known is None or known.source != "sign_in"
    return KeyHolder(identity.host.name, identity.name, signs_in=signs_in, token=token)


def _check_whole(identity: TokenIdentity) -> str:
    """The token of a request; raises Unauthorized for one that stands for less than its owner."""
    state, token = identity.host.space.state, identity.token
    given = None if token is None else state.token_rights(token)
    # Of a provider's: what others of their programs were given, which may be more.
    others = state.roster.find(identity.name).rights_by_sign_in if given is not None else ()
    is_less = given is not None and not all(covered_by(each, given.capabilities) for each in others)
    if token is None or is_less or state.token_limit(token) is not None:
        raise Unauthorized(
            "this token has less than all rights of its owner: it adds no passkey and removes none"
        )
    return token

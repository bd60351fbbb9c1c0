"""Passkeys of people: where they are good for, what is signed to add one and to sign in, and by whom.

What a page asks for and what comes back are two requests, and no gateway remembers the first: a challenge is
the hash of a ticket that says what it is for and until when, with a code (HMAC) that only the gateways of one
cluster can make. What is used up, and how often a key has signed, is kept by the spaces.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import importlib
import secrets
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import ip_address
from typing import Any, Final, Literal, Protocol
from urllib.parse import urlsplit

import msgspec

from moot.errors import InvalidRequest, PasskeyInvalid, Refused, Unauthorized
from moot.gateway.access import SpaceDirectory
from moot.gateway.hosting.mint import FreshMint
from moot.gateway.hosting.space_host import SpaceHost
from moot.gateway.other_spaces import AskedSpaces
from moot.gateway.sign_in.sign_in_links import VALID_SECONDS
from moot.protocol import base64url
from moot.protocol.operation import Json
from moot.protocol.refusals import payload_of, refusal_of
from moot.space.config import Name
from moot.space.inputs.passkey_changes import PasskeyInput
from moot.space.tokens.passkey_proof import CHALLENGE_SECONDS, Assertion, decision_challenge, is_localhost
from moot.space.tokens.passkeys import MAX_NAME_CHARS, Passkey
from moot.space.tokens.temporary_tokens import TemporaryToken

# A working day: then the passkey is asked for again.
SIGN_IN_SECONDS: Final = 12 * 3_600.0
_KEY_BYTES: Final = 32
# Under this name gateways of a cluster share their key.
_SHARED_KEY: Final = "passkey-tickets"


class SharedKeys(Protocol):
    """What gateways of a cluster have in common."""

    async def create(self, key: str, value: bytes) -> bytes:
        """Write it if there is none yet; returns what is there. Raises Unavailable."""
        ...


class RelyingParty(msgspec.Struct, frozen=True):
    """What a passkey is bound to."""

    id: str
    origin: str


class KeyHolder(msgspec.Struct, frozen=True):
    """Whose passkey it will be."""

    space: str
    name: str
    # False: they come in by a provider of identities.
    signs_in: bool = True
    # The hash of the token that asks; empty: an operator's link does.
    token: str = ""


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """What a challenge is for."""

    use: Literal["add", "sign_in"]
    relying_party: RelyingParty
    expires: float
    nonce: str
    holders: tuple[KeyHolder, ...] = ()
    by_link: bool = False
    # For the journal: who made the link.
    by: str = ""


class NewPasskey(msgspec.Struct, frozen=True):
    """A key that a page has made for the holders of a ticket."""

    ticket: Ticket
    challenge: str
    id: str
    public_key: str
    sign_count: int
    name: str
    # By an earlier key of theirs.
    proof: Assertion | None


class SignedChallenge(msgspec.Struct, frozen=True):
    """Somebody signs in; no secret is in it, as it may be told to another gateway."""

    challenge: str
    assertion: Assertion
    token_hash: str
    seconds: float


# What a passkey does in one space, and what is told of that; None for nothing. Raises Refused.
Act = Callable[[Any, SpaceHost], Awaitable[Json]]


def relying_party(origin: str | None, public_url: str | None) -> RelyingParty:
    """Where passkeys of this page are good for; raises InvalidRequest that says what to do."""
    if origin is None:
        raise InvalidRequest("passkeys are for browsers: open the console")
    own = None if public_url is None else "{0.scheme}://{0.netloc}".format(urlsplit(public_url)).lower()
    found = origin.lower().rstrip("/")
    try:
        parts = urlsplit(found)
        host, number = parts.hostname or "", parts.port
    except ValueError:
        host = ""
    if not host:
        raise InvalidRequest("this is no address of a page: open the console")
    if own is not None and found != own and not is_localhost(host):
        raise InvalidRequest(f"passkeys are bound to one address: open the console at {public_url}")
    if _is_address(host):
        port = f":{number}" if number else ""
        raise InvalidRequest(
            f"a passkey is bound to a name, and {host} is an address: open the console at "
            f"{parts.scheme}://localhost{port}, or set gateway.public_url to a name with https"
        )
    if parts.scheme != "https" and not is_localhost(host):
        raise InvalidRequest("browsers have passkeys with https alone, or at localhost: use a certificate")
    return RelyingParty(host, found)


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


class PasskeyService:
    """Makes tickets and challenges, and passes what was signed to the spaces."""

    def __init__(self, directory: SpaceDirectory, *, max_token_seconds: float) -> None:
        self._directory = directory
        self._token_seconds = min(SIGN_IN_SECONDS, max_token_seconds)
        self._key: bytes | None = None
        # Set in a cluster.
        self.shared: SharedKeys | None = None
        directory.others.answer("passkey_add", self._answer_add)
        directory.others.answer("passkey_sign_in", self._answer_sign_in)

    # Tickets

    async def issue(self, ticket: Ticket) -> str:
        """A ticket as the page keeps it; raises Unavailable."""
        body = base64url.encode(msgspec.json.encode(ticket))
        return f"{body}.{base64url.encode(await self._code_of(body))}"

    async def read(self, text: Json, use: str, now: float) -> Ticket:
        """Raises PasskeyInvalid for a ticket that is not ours, is for something else, or too old."""
        wrong = PasskeyInvalid("this took too long, or was not begun here: start again")
        if not isinstance(text, str):
            raise wrong
        body, _, code = text.partition(".")
        try:
            is_ours = hmac.compare_digest(base64url.decode(code), await self._code_of(body))
            ticket = msgspec.json.decode(base64url.decode(body), type=Ticket) if is_ours else None
        except ValueError:
            ticket = None
        if ticket is None or ticket.use != use or now >= ticket.expires:
            raise wrong
        return ticket

    async def _code_of(self, body: str) -> bytes:
        if self._key is None:
            made = secrets.token_bytes(_KEY_BYTES)
            self._key = made if self.shared is None else await self.shared.create(_SHARED_KEY, made)
        return hmac.digest(self._key, body.encode(), "sha256")

    # Adding

    async def add(
        self, ticket: Ticket, text: str, credential: Json, name: Json, proof: Assertion | None
    ) -> list[str]:
        """Give the holders of a ticket this key; returns the spaces. Raises Refused."""
        if not isinstance(name, str) or len(name) > MAX_NAME_CHARS:
            raise InvalidRequest(f"name is a text of {MAX_NAME_CHARS} characters at most")
        challenge = challenge_of(text)
        id, public_key, count = await asyncio.to_thread(_verify_new, credential, challenge, ticket)
        # Without what makes a ticket of this one: it may be told to another gateway.
        bare = msgspec.structs.replace(ticket, nonce="")
        new = NewPasskey(bare, base64url.encode(challenge), id, public_key, count, name, proof)
        added, refusal = await self._everywhere("passkey_add", new, _add_in)
        if not added:
            raise refusal or Unauthorized("nobody is there for this passkey any more")
        return added

    async def _answer_add(self, facts: Json, asked: AskedSpaces) -> Json:
        return _encode(await _act_in(asked.hosts, _add_in, msgspec.convert(facts, NewPasskey)))

    # Signing in

    async def sign_in(self, text: str, assertion: Assertion) -> dict[str, Json]:
        """A token for the owner of this key, in every space that knows it. Raises Refused."""
        await load_library()
        token = FreshMint().token()
        challenge = base64url.encode(challenge_of(text))
        signed = SignedChallenge(challenge, assertion, token.hash, self._token_seconds)
        opened, refusal = await self._everywhere("passkey_sign_in", signed, _sign_in_to)
        if not opened:
            raise refusal or PasskeyInvalid("no space here knows this passkey: sign in as before and add it")
        return {"token": token.secret, "seconds": self._token_seconds, "spaces": opened}

    async def _answer_sign_in(self, facts: Json, asked: AskedSpaces) -> Json:
        await load_library()
        return _encode(await _act_in(asked.hosts, _sign_in_to, msgspec.convert(facts, SignedChallenge)))

    async def _everywhere(
        self, about: str, facts: NewPasskey | SignedChallenge, act: Act
    ) -> tuple[list[Json], Refused | None]:
        """What came of it in all spaces of the cluster, and the first refusal. Raises Unavailable."""
        hosts = list(self._directory.hosts.values())
        # First: should somebody not answer, whoever asks tries again.
        answers = await self._directory.others.ask(about, msgspec.to_builtins(facts))
        done, refusal = await _act_in(hosts, act, facts)
        for answer in answers:
            done += answer["done"]
            if answer["refusal"] is not None:
                refusal = refusal or refusal_of(answer["refusal"])
        return done, refusal

    # Deciding

    async def decision(self, host: SpaceHost, name: str, proposal_id: str) -> dict[str, Json]:
        """What a member signs to approve a proposal; raises Refused."""
        await load_library()
        state, now = host.space.state, host.journaled.clock()
        proposal = state.ledger.get(proposal_id)
        if proposal is None or proposal.state_at(now) != "open":
            raise InvalidRequest("no open proposal of this id is known here")
        keys = state.passkeys.of(Name(name))
        if not keys:
            raise Unauthorized(
                "you have no passkey in this space: add one first (Passkeys, below your name), or ask your"
                " operator for a link"
            )
        nonce, expires = secrets.token_urlsafe(16), round(now + CHALLENGE_SECONDS - 1, 3)
        challenge = decision_challenge(
            state.config.name, proposal, Name(name), "approve", nonce=nonce, expires=expires
        )
        return {
            "challenge": base64url.encode(challenge),
            "rp_id": keys[0].rp_id,
            "credentials": [key.id for key in keys],
            "nonce": nonce,
            "expires": expires,
            "fingerprint": proposal.fingerprint,
        }


async def _act_in(
    hosts: Sequence[SpaceHost], act: Act, facts: NewPasskey | SignedChallenge
) -> tuple[list[Json], Refused | None]:
    done: list[Json] = []
    refusal: Refused | None = None
    for host in hosts:
        try:
            if (outcome := await act(facts, host)) is not None:
                done.append(outcome)
        except Refused as fault:
            refusal = refusal or fault
    return done, refusal


def _encode(outcome: tuple[list[Json], Refused | None]) -> Json:
    """For the gateway that asked."""
    done, refusal = outcome
    return {"done": done, "refusal": None if refusal is None else payload_of(refusal)}


async def _add_in(new: Any, host: SpaceHost) -> Json:
    """The space's name; None if no holder of the ticket is there."""
    ticket = new.ticket
    holder = next((each for each in ticket.holders if each.space == host.name), None)
    if holder is None:
        return None
    key = Passkey(
        id=new.id,
        member=Name(holder.name),
        public_key=new.public_key,
        rp_id=ticket.relying_party.id,
        origin=ticket.relying_party.origin,
        name=new.name,
        sign_count=new.sign_count,
        by_link=ticket.by_link,
        signs_in=holder.signs_in,
    )
    has_others = bool(host.space.state.passkeys.of(key.member))
    told = PasskeyInput(
        key=key,
        assertion=new.proof if has_others and not ticket.by_link else None,
        challenge=new.challenge,
        # By the space's clock.
        expires=host.journaled.clock() + VALID_SECONDS,
        made_with=holder.token,
    )
    await host.rights.change_passkeys("passkey_add", told, holder.name, ticket.by or holder.name)
    return host.name


async def _sign_in_to(signed: Any, host: SpaceHost) -> Json:
    """The space and who they are there; None if it does not know the key."""
    key = host.space.state.passkeys.by_id.get(signed.assertion.credential_id)
    if key is None:
        return None
    now = host.journaled.clock()
    told = PasskeyInput(
        assertion=signed.assertion,
        challenge=signed.challenge,
        # By the space's clock.
        expires=now + CHALLENGE_SECONDS,
        token=TemporaryToken(
            hash=signed.token_hash,
            member=key.member,
            expires_at=now + signed.seconds,
            since=now,
            passkey=key.id,
        ),
    )
    await host.rights.change_passkeys("passkey_sign_in", told, key.member, key.member)
    return {"space": host.name, "participant": key.member}


def challenge_of(ticket: str) -> bytes:
    return hashlib.sha256(ticket.encode()).digest()


async def load_library() -> None:
    """Load what verifies signatures, in a thread: it takes a third of a second."""
    await asyncio.to_thread(importlib.import_module, "webauthn")


def describe_keys(host: SpaceHost, names: Sequence[Name]) -> list[dict[str, Json]]:
    """Passkeys of these members, for people."""
    return [
        {
            "id": key.id,
            "participant": key.member,
            "space": host.name,
            "name": key.name,
            "address": key.origin,
            "added_at": key.added_at,
            "used_at": key.used_at or None,
            "signs_in": key.signs_in,
            "by_link": key.by_link,
            "public_key": key.public_key,
        }
        for name in names
        for key in host.space.state.passkeys.of(name)
    ]


def _verify_new(credential: Json, challenge: bytes, ticket: Ticket) -> tuple[str, str, int]:
    """Its id, its public key and its counter. Raises PasskeyInvalid."""
    from webauthn import verify_registration_response
    from webauthn.helpers.exceptions import WebAuthnException

    if not isinstance(credential, dict):
        raise PasskeyInvalid("credential is what the browser's navigator.credentials.create() gave")
    try:
        made = verify_registration_response(
            credential=credential,
            expected_challenge=challenge,
            expected_rp_id=ticket.relying_party.id,
            expected_origin=ticket.relying_party.origin,
            require_user_verification=True,
        )
    except (WebAuthnException, ValueError, TypeError, KeyError, IndexError):
        raise PasskeyInvalid(
            "this is no passkey of this page, or the authenticator did not check who you are"
            " (fingerprint, face or PIN): try again"
        ) from None
    return base64url.encode(made.credential_id), base64url.encode(made.credential_public_key), made.sign_count

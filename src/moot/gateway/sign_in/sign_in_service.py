"""Signing in with a JWT: from a bearer token to a member of a space, and out again.

A token is verified once. From then on the space knows its hash, as it knows those of other tokens, until the
token ends; so a token that is in use costs what any other does. The claims of tokens in use are kept in
memory alone, for the day that the rules change.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from moot.config.oidc_config import OidcConfig
from moot.errors import MootError, Refused
from moot.gateway.access import AccessDenied, ProviderClaims, SignedInAccount, TokenIdentity
from moot.gateway.hosting.space_host import SpaceHost
from moot.gateway.other_spaces import AskedSpaces, OtherSpaces
from moot.gateway.sign_in import token_verifier
from moot.gateway.sign_in.identity_rules import MappedIdentity, describe_rules, map_identity
from moot.gateway.sign_in.introspection import Introspection
from moot.gateway.sign_in.provider_keys import ProviderKeys
from moot.gateway.sign_in.sign_in_facts import (
    LogoutFacts,
    LogoutQuestion,
    SignOut,
    answer_logout,
    answer_sign_out,
    audited,
    details_of,
    find_meant,
    is_signed_out,
    sign_out_of,
)
from moot.gateway.sign_in.token_keys import (
    client_of,
    key_of,
    keys_of,
    subjects_of,
    without_session,
)
from moot.gateway.sign_in.token_verifier import (
    AudienceOf,
    TokenVerifier,
    VerifiedToken,
    audiences_of,
    is_for_us,
    looks_like_jwt,
)
from moot.protocol.latest_dict import LatestDict
from moot.protocol.operation import Json
from moot.resilience.task_set import TaskSet
from moot.space.config import Name
from moot.space.inputs.sign_in import check_sign_in
from moot.space.members.member import capability_pairs
from moot.space.tokens.temporary_tokens import MAX_LIFE_SECONDS, SignIn, TemporaryToken

log = logging.getLogger(__name__)

# How long a connection may still renew its token after that has expired; then it is closed.
RENEW_GRACE_SECONDS: Final = 60
# Tokens whose claims are kept; of more, the oldest are asked for again when the rules change.
_MAX_KNOWN: Final = 50_000
_ANOTHER_SPACE: Final = AccessDenied(403, "this account may not enter this space")


class SignInService:
    """Everybody who signs in at the providers of one gateway."""

    def __init__(
        self,
        providers: Sequence[OidcConfig],
        hosts: Mapping[str, SpaceHost],
        others: OtherSpaces,
    ) -> None:
        self.keys = [ProviderKeys(config) for config in providers]
        self.refused = 0
        self._rules = {config.issuer: config for config in providers}
        self._verifier = TokenVerifier(self.keys)
        # Whether everybody has what the rules say; if not, the same rules are applied again.
        self._is_in_effect = True
        self._hosts = hosts
        self._others = others
        others.answer("sign_out", answer_sign_out)
        others.answer("logout", answer_logout)
        others.answer("administers_all", self._answer_administers)
        # In a cluster: whether that is all spaces that there are.
        self.serves_all: Callable[[], bool] = lambda: True
        # By the hash of the token.
        self._known: LatestDict[str, VerifiedToken] = LatestDict(_MAX_KNOWN)
        # Signed with a key that the provider has taken back, and not yet ended everywhere.
        self._withdrawn: dict[str, VerifiedToken] = {}
        self._introspections = {
            keys.config.issuer: Introspection(keys, asked, self._is_over, self._revoke)
            for keys in self.keys
            if (asked := keys.config.introspection) is not None
        }
        for keys in self.keys:
            keys.on_withdrawn = self._end_withdrawn
        self._tasks = TaskSet("keys of providers")

    def start(self) -> None:
        for keys in self.keys:
            self._tasks.start(keys.run())
        for each in self._introspections.values():
            self._tasks.start(each.run())

    async def stop(self) -> None:
        await self._tasks.close()

    # In

    def takes(self, token: str) -> bool:
        return looks_like_jwt(token)

    def identify(
        self, host: SpaceHost, token: str, token_hash: str, *, is_listing: bool = False
    ) -> TokenIdentity | AccessDenied:
        """Whom this token means in that space. Nothing happens there before `SpaceHost.sign_in`.

        `is_listing`: they ask which spaces are theirs, so that it is no refused sign-in if this one is not.
        """
        verified = self._verify(token, token_hash)
        if isinstance(verified, AccessDenied):
            self.refused += verified.status < 500
            return verified
        sign_in = self.map(host, verified, token_hash, is_listing=is_listing)
        if isinstance(sign_in, AccessDenied):
            return sign_in
        return TokenIdentity(host, sign_in.token.member, token=token_hash, sign_in=sign_in)

    def administrator(self, token: str, token_hash: str, space: str | None) -> str | None:
        """Who administers that space with this token, or all that are served here where it is None.

        By a rule that says so; never by another's name.
        """
        verified = self._verify(token, token_hash)
        if isinstance(verified, AccessDenied):
            self.refused += verified.status < 500
            return None
        hosts = self._hosts.values() if space is None else filter(None, [self._hosts.get(space)])
        return self._administrator(verified, space, hosts)

    async def _answer_administers(self, facts: Json, asked: AskedSpaces) -> Json:
        verified = self._read_claims(msgspec.convert(facts, ProviderClaims))
        return verified is not None and self._administrator(verified, None, asked.hosts) is not None

    def _administrator(
        self, verified: VerifiedToken, space: str | None, hosts: Iterable[SpaceHost]
    ) -> str | None:
        mapped = self._map_administrator(verified, space)
        if mapped is None:
            return None
        # What happened in one space takes nobody the administration of another.
        for host in hosts:
            member = host.space.state.roster.members.get(Name(mapped.name))
            is_removed = member is not None and member.kicked and host.name in mapped.rule.spaces
            if is_removed or is_signed_out(host, verified):
                return None
        # As it is written down: who it is at which provider, so that it is no name of `admin_tokens`.
        account = verified.claims[verified.provider.subject_claim]
        return f"{mapped.name} ({account} at {verified.provider.issuer})"

    def _map_administrator(self, verified: VerifiedToken, space: str | None) -> MappedIdentity | None:
        """Who administers that space by the rules, whatever has happened in it."""
        mapped = map_identity(verified.claims, self._rules[verified.provider.issuer])
        given = False if mapped is None else mapped.rule.administrator
        return mapped if given is True or (given is not False and space in given) else None

    def claims_of(self, token: str, token_hash: str) -> ProviderClaims | AccessDenied:
        """What a token says, for gateways that serve other spaces."""
        verified = self._verify(token, token_hash)
        if isinstance(verified, AccessDenied):
            return verified
        provider, claims, expires, issued, key_id = verified
        return ProviderClaims(provider.issuer, dict(claims), expires, issued, key_id)

    def identify_claims(
        self, host: SpaceHost, claims: ProviderClaims, token_hash: str
    ) -> TokenIdentity | AccessDenied:
        """Whom a token means in that space that another gateway has verified."""
        verified = self._read_claims(claims)
        if verified is None:
            return _ANOTHER_SPACE
        sign_in = self.map(host, verified, token_hash, is_listing=True)
        if isinstance(sign_in, AccessDenied):
            return sign_in
        return TokenIdentity(host, sign_in.token.member, token=token_hash, sign_in=sign_in)

    def administers(self, claims: ProviderClaims, space: str) -> bool:
        """Whether that person administers a space that is served here."""
        verified = self._read_claims(claims)
        hosts = filter(None, [self._hosts.get(space)])
        return verified is not None and self._administrator(verified, space, hosts) is not None

    def _read_claims(self, claims: ProviderClaims) -> VerifiedToken | None:
        """None for a provider that this gateway does not know."""
        config = self._rules.get(claims.issuer)
        if config is None:
            return None
        return VerifiedToken(config, claims.claims, claims.expires, claims.issued, claims.key_id)

    def account_of(self, token: str, token_hash: str) -> SignedInAccount | None:
        verified = self._verify(token, token_hash)
        if isinstance(verified, AccessDenied):
            return None
        return SignedInAccount(tuple(keys_of(verified)), verified.issued)

    def watch(self, token: str, token_hash: str) -> None:
        """Know and ask about a token, too, that another gateway of the cluster has let in."""
        self._verify(token, token_hash)

    def verify_for(self, token: str, audience_of: AudienceOf) -> VerifiedToken | AccessDenied:
        """What a token for somebody else says; nothing is remembered of it, so it never lets anybody in."""
        verified = self._verifier.verify(token, time.time(), audience_of)
        if isinstance(verified, AccessDenied):
            self.refused += verified.status < 500
        return verified

    def seconds_left(self, verified: VerifiedToken) -> float:
        """For how long a token can be used from now on."""
        return verified.expires + token_verifier.SKEW_SECONDS - time.time()

    def remember(self, token_hash: str, token: str, verified: VerifiedToken) -> None:
        """Keep what a provider says of whoever comes with this hash, for the day that the rules change.

        `token` is the provider's own, about which it is asked from now on, if it can be.
        """
        introspection = self._introspections.get(verified.provider.issuer)
        if introspection is not None:
            introspection.watch(token_hash, token, verified)
        self._known[token_hash] = verified

    def map(
        self, host: SpaceHost, verified: VerifiedToken, token_hash: str, *, is_listing: bool = False
    ) -> SignIn | AccessDenied:
        """Who somebody is in that space, under a token of this hash; checked, and nothing has happened."""
        found = self._map(host, verified, token_hash)
        if not isinstance(found, AccessDenied):
            try:
                check_sign_in(host.space.state, found)
            except Refused as refusal:
                found = AccessDenied(403, refusal.message)
        if isinstance(found, AccessDenied) and not (is_listing and found is _ANOTHER_SPACE):
            self.refused += 1
            host.refusals.record_sign_in(audited(verified), found.message)
        return found

    def _verify(self, token: str, token_hash: str) -> VerifiedToken | AccessDenied:
        known, now = self._known.get(token_hash), time.time()
        if known is not None and now < known.expires + token_verifier.SKEW_SECONDS:
            return known
        verified = self._verifier.verify(token, now)
        if isinstance(verified, VerifiedToken):
            self.remember(token_hash, token, verified)
        return verified

    def _map(self, host: SpaceHost, verified: VerifiedToken, token_hash: str) -> SignIn | AccessDenied:
        config = self._rules[verified.provider.issuer]
        mapped = map_identity(verified.claims, config)
        if mapped is None:
            return AccessDenied(403, "no rule of this gateway lets this account in: ask whoever runs it")
        if host.name not in mapped.rule.spaces:
            return _ANOTHER_SPACE
        claims, grace = verified.claims, RENEW_GRACE_SECONDS
        left, now = self.seconds_left(verified), host.journaled.clock()
        token = TemporaryToken(
            hash=token_hash,
            member=Name(mapped.name),
            expires_at=now + left + grace,
            grace_seconds=grace,
            source="sign_in",
            keys=tuple(keys_of(verified)),
            issued_at=verified.issued,
            client=client_of(claims),
            since=now,
            issuer=config.issuer,
            rule=mapped.number,
        )
        rights = mapped.rule.capabilities
        return SignIn(
            token=token,
            capabilities=None if rights is None else capability_pairs(rights),
            known_as=subjects_of(verified)[-1] if config.subject_claim != "sub" else "",
            details=details_of(verified, mapped),
        )

    def describe_rules(self, space: str) -> list[dict[str, Json]]:
        """The rules that let people into that space or let them administer it, as administrators see them."""
        return [
            {"issuer": config.issuer, "rules": describe_rules(config, space), "all_rules": len(config.people)}
            for config in self._rules.values()
        ]

    # Out

    async def sign_out(self, token: str) -> AccessDenied | None:
        """End all that the person with this token has signed in for, everywhere."""
        verified = self._verifier.verify(token, time.time())
        if isinstance(verified, AccessDenied):
            return verified
        # A token of this very second is meant as well.
        before = max(time.time(), verified.issued)
        await self._end(keys_of(verified)[:1], "themselves", verified, before)
        return None

    async def take_logout(self, logout_token: str) -> AccessDenied | None:
        """The provider says that somebody's session there has ended. Raises Unavailable, and whatever keeps
        it from being over everywhere: the provider is not told that it is."""
        verified = self._verifier.verify_logout(logout_token, time.time())
        if isinstance(verified, AccessDenied):
            return verified
        claims, issuer = verified.claims, verified.provider.issuer
        subject, session = (
            key_of(name, claims, name) if isinstance(claims.get(name), str) else "" for name in ("sub", "sid")
        )
        asked = LogoutQuestion(issuer, tuple(audiences_of(claims["aud"])), subject, session)
        told = await self._others.ask("logout", msgspec.to_builtins(asked))
        found = [*msgspec.convert(told, list[LogoutFacts]), find_meant(self._hosts.values(), asked)]
        # For us, or for a client that people have signed in with here: it may tell us what it is told.
        if not is_for_us(verified) and not any(each.is_client for each in found):
            return AccessDenied(400, "the logout token is for somebody else")
        accounts = frozenset[str]().union(*(each.accounts for each in found)) - {subject}
        keys = [subject, *sorted(accounts)] if subject else []
        if session:
            # That session alone; a person may be signed in on several devices. Of tokens that name none,
            # all of that person's.
            keys = [session, *map(without_session, keys)]
        # Until then, and no later: a logout token that comes again ends no newer session.
        await self._end(keys, issuer, verified, verified.issued)
        # Never "signed out" for what nobody knows.
        is_nobodys = not subject and not any(each.knows_session for each in found)
        if is_nobodys and any(each.has_tokens_without_session for each in found):
            return AccessDenied(
                400, "tokens of this provider name no session (sid) here: let its logout tokens have a sub"
            )
        return None

    async def _end(self, keys: Sequence[str], by: str, verified: VerifiedToken, before: float) -> None:
        keep = verified.provider.max_token_seconds + 2 * token_verifier.SKEW_SECONDS
        order = SignOut(tuple(keys), by, before, keep)
        hosts = list(self._hosts.values())
        try:
            await self._others.ask("sign_out", msgspec.to_builtins(order))
        finally:
            await sign_out_of(hosts, order)
        log.info("signed out", extra={"issuer": verified.provider.issuer})

    async def _end_withdrawn(self, issuer: str, keys: frozenset[str | None]) -> None:
        """The provider has taken keys back: nothing that they signed is believed any longer.

        Raises MootError if not all of it could be ended; whoever calls again ends the rest.
        """
        for token_hash, verified in list(self._known.items()):
            if verified.provider.issuer == issuer and verified.key_id in keys:
                self._withdrawn[token_hash] = self._known.pop(token_hash)
        fault: MootError | None = None
        for token_hash, verified in list(self._withdrawn.items()):
            if verified.provider.issuer == issuer:
                try:
                    await self._revoke(verified)
                    self._withdrawn.pop(token_hash, None)
                except MootError as failed:
                    fault = failed
        if fault is not None:
            raise fault

    async def _revoke(self, verified: VerifiedToken) -> None:
        """The provider has taken a token back: end it, by the narrowest name that it has."""
        await self._end(keys_of(verified)[-1:], verified.provider.issuer, verified, verified.issued)

    def _is_over(self, verified: VerifiedToken) -> bool:
        # Who is signed out of one space may be in another.
        hosts = self._hosts.values()
        is_out = self.serves_all() and bool(hosts) and all(is_signed_out(host, verified) for host in hosts)
        return is_out or self.seconds_left(verified) <= 0

    # Other rules

    async def reload(self, providers: Iterable[OidcConfig]) -> None:
        """Take other rules over: whoever they no longer mean is signed out, others get their new rights."""
        given = {config.issuer: config for config in providers}
        nobody = {issuer: msgspec.structs.replace(old, people=()) for issuer, old in self._rules.items()}
        rules = {issuer: given.get(issuer, none) for issuer, none in nobody.items()}
        if rules == self._rules and self._is_in_effect:
            # Whom only another gateway of a cluster has seen would be signed out for nothing.
            return
        self._rules, self._is_in_effect = rules, False
        # Tokens that were made with one of a provider have its keys, and its rights.
        makers = {
            (tuple(keys_of(each)), each.issued, client_of(each.claims)): each for each in self._known.values()
        }
        failed = [] if self.serves_all() else ["spaces that this gateway does not serve now"]
        for host in list(self._hosts.values()):
            for token in list(host.space.state.temporary_tokens.by_hash.values()):
                try:
                    if token.source == "sign_in":
                        await self._remap(host, token, self._known.get(token.hash))
                    elif token.rights is not None:
                        maker = makers.get((token.keys, token.issued_at, token.client))
                        await self._remap(host, token, maker)
                    elif (
                        token.made_by
                        and not token.made_with
                        and not self._is_administered(host, token.made_by)
                    ):
                        await host.rights.sign_out(
                            (), "the rules", issued_before=0.0, keep_seconds=0.0, tokens=[token.hash]
                        )
                except MootError as fault:
                    # The others do not wait for this one.
                    failed.append(f"{token.member} in {host.name}: {fault}")
        self._is_in_effect = not failed
        if failed:
            log.error(
                "not everybody could be given what the new rules say: reload again", extra={"failed": failed}
            )

    def _is_administered(self, host: SpaceHost, account: str) -> bool:
        """Whether this account administers that space, by what is known of it."""
        return any(
            keys_of(each)[0] == account and self._map_administrator(each, host.name) is not None
            for each in self._known.values()
        )

    async def _remap(self, host: SpaceHost, token: TemporaryToken, verified: VerifiedToken | None) -> None:
        sign_in = None if verified is None else self._map(host, verified, token.hash)
        is_same = isinstance(sign_in, SignIn) and sign_in.token.member == token.member
        if isinstance(sign_in, SignIn) and is_same:
            # Other rules give a token no more than it was made for.
            carried = msgspec.structs.replace(
                sign_in.token, limited_to=token.limited_to, since=token.since or sign_in.token.since
            )
            if token.source == "minted":
                carried = token
            sign_in = msgspec.structs.replace(sign_in, token=carried)
            try:
                host.rights.sign_in(sign_in, again=True)
            except Refused:
                is_same = False
        if not is_same:
            await host.rights.sign_out(
                token.keys[:1], "the rules", issued_before=token.issued_at, keep_seconds=MAX_LIFE_SECONDS
            )

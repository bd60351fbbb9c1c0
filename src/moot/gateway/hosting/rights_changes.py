"""What changes who may do what in a space, and comes neither by a message nor by a connection.

Each is an input of the space: put in order, journaled, and answered when it is on disk where somebody waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import msgspec

from moot.errors import Refused
from moot.gateway.hosting.durability import CarriedOut
from moot.gateway.hosting.input_applier import Applied
from moot.gateway.hosting.input_order import InputOrder, Outcome, wait_applied
from moot.gateway.hosting.journaled_space import JournaledSpace
from moot.protocol.operation import Json
from moot.protocol.patterns import Capability
from moot.space.config import SessionId, SpaceConfig
from moot.space.config_json import save_config
from moot.space.effects import Token
from moot.space.inputs.passkey_changes import PasskeyInput
from moot.space.members.member import capability_pairs
from moot.space.tokens.temporary_tokens import SignIn, TemporaryToken

log = logging.getLogger(__name__)


class RightsChanges:
    """Signing in and out, tokens, and what operators do."""

    def __init__(self, journaled: JournaledSpace, order: InputOrder) -> None:
        self._journaled = journaled
        self._space = journaled.space
        self._order = order

    def sign_in(self, who: SignIn, *, again: bool = False) -> None:
        """Admit somebody whom a provider of identities knows; raises Refused.

        Who is in already stays in, unless `again` is said: then with the rights that they have now.
        """
        if not again and self._knows(who):
            return
        self._order.check_available()
        self._order.submit("sign_in", _facts_of(who))
        if not again:
            self._log_sign_in(who)

    async def sign_in_applied(self, who: SignIn) -> None:
        """`sign_in`, done when the space knows them, which in a cluster takes a turn of the log."""
        if self._knows(who):
            return
        self._order.check_available()
        await wait_applied(lambda tell: self._order.submit("sign_in", _facts_of(who), tell))
        self._log_sign_in(who)

    def _knows(self, who: SignIn) -> bool:
        return self._space.state.temporary_tokens.get(who.token.hash) is not None

    def _log_sign_in(self, who: SignIn) -> None:
        facts = {
            "space": self._journaled.name,
            "participant": who.token.member,
            "issuer": who.details.get("issuer"),
        }
        log.info("signed in", extra=facts)

    async def sign_out(
        self,
        keys: Sequence[str],
        by: str,
        *,
        issued_before: float,
        keep_seconds: float,
        tokens: Sequence[str] = (),
    ) -> None:
        """End what was signed in under these keys, and these tokens, also while no journal can be written."""
        forget_at = self._journaled.clock() + keep_seconds
        named: dict[str, Json] = {"tokens": list(tokens)} if tokens else {}
        who = self._holders(set(keys), tokens)
        if who:
            # For the audit: keys are hashes.
            named["who"] = ", ".join(who)
        await self._change(
            "sign_out", by=by, keys=list(keys), issued_before=issued_before, forget_at=forget_at, **named
        )

    def _holders(self, keys: set[str], tokens: Sequence[str]) -> list[str]:
        """The members who come in with these tokens, or under these keys."""
        state = self._space.state
        owners = {state.roster.find_token_owner(each) for each in tokens}
        owners |= {
            token.member
            for token in state.temporary_tokens.by_hash.values()
            if token.hash in tokens or keys.intersection(token.keys)
        }
        return sorted(owner for owner in owners if owner is not None)

    def renew(self, session: SessionId, token: str, refuse: Callable[[Refused], None]) -> None:
        """Let a connection go on under a newer token of the same person, or tell why not."""

        def tell(outcome: Outcome) -> None:
            if isinstance(outcome, Refused):
                refuse(outcome)

        try:
            self._order.submit("renew", {"session": session, "tokens": [token]}, tell)
        except Refused as refusal:
            refuse(refusal)

    async def add_token(self, token: TemporaryToken, by: str) -> None:
        """Give a member a short-lived token; raises Refused."""
        self._order.check_available()
        await self._change(
            "temporary_token", who=token.member, by=by, temporary_token=msgspec.to_builtins(token)
        )

    async def change_passkeys(self, input: str, told: PasskeyInput, who: str, by: str) -> CarriedOut:
        """Add or remove passkeys of a member, or sign in with one; raises Refused."""
        if input != "passkey_remove":
            self._order.check_available()
        return await self._change(input, who=who, by=by, passkey=msgspec.to_builtins(told))

    async def change_capabilities(
        self, who: str, add: Sequence[Capability], remove: Sequence[Capability], by: str
    ) -> CarriedOut:
        if add:
            self._order.check_available()
        # With their notations: the same text means another right in MEW than in MCPx.
        given, taken = ([list(pair) for pair in capability_pairs(each)] for each in (add, remove))
        return await self._change("capabilities", who=who, by=by, add=given, remove=taken)

    async def restore_member(self, who: str, by: str) -> CarriedOut:
        self._order.check_available()
        return await self._change("restore", who=who, by=by, drops_added=True)

    async def rotate_credential(self, who: str, token: Token, by: str, *, keep: bool) -> None:
        self._order.check_available()
        await self._change("rotate", who=who, by=by, keep=keep, tokens=[token.hash])

    def reload(self, config: SpaceConfig) -> None:
        """Take a configuration over; its record contains it, for replays."""
        self._order.submit("reload", {"config": save_config(config)})
        self._journaled.save_snapshot()

    async def _change(self, input: str, **facts: Json) -> CarriedOut:
        """Submit an input, answered once its record is on disk. Raises Refused.

        OutcomeUnknown when the journal fails before that; what only reduces rights takes effect then all
        the same, which the answer says (`on_disk`).
        """
        applied = await wait_applied(lambda tell: self._order.submit(input, facts, tell))
        if not isinstance(applied, Applied):
            raise TypeError(f"a change of rights came to {applied!r}")
        done = await applied.done
        await self._journaled.durability.wait_noted(applied.noted, done)
        return done


def _facts_of(who: SignIn) -> dict[str, Json]:
    return {"who": who.token.member, "sign_in": msgspec.to_builtins(who)}

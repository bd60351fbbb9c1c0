"""The passkeys of a space's members: with what they sign in, and confirm decisions.

They are part of the space's state: added and removed by inputs of its journal, so that every gateway of a
cluster knows the same, a restart forgets none, and a removed one stays removed. Nobody gets rights by a
passkey: it stands for a member who is there.

A member who has none yet adds the first one when signed in, or by a link from an operator; every further one
is confirmed with one of those, or comes by a link. Who had one and lost it needs a link.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from moot.errors import InvalidOperation, PasskeyInvalid, PasskeyRequired, ResourceLimit, Unauthorized
from moot.protocol import base64url
from moot.protocol.operation import Json
from moot.space.config import Name
from moot.space.tokens.passkey_proof import Assertion, VerificationKey, challenge_key, verify_assertion

# A computer, a phone, a spare key, and those that were replaced and forgotten.
MAX_PASSKEYS_PER_MEMBER: Final = 16
MAX_NAME_CHARS: Final = 64
# Sign-ins within the few minutes for which a challenge is good.
_MAX_USED: Final = 10_000


class Passkey(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One key of one member."""

    # As the authenticator names it, in base64url.
    id: str
    member: Name
    # COSE, in base64url.
    public_key: str
    rp_id: str
    origin: str
    # What its owner calls the device.
    name: str = ""
    sign_count: int = 0
    added_at: float = 0.0
    used_at: float = 0.0
    # Came by a link from an operator, or was confirmed with one that did: a stolen token did not add it.
    by_link: bool = False
    # False: its owner comes in by a provider of identities, and confirms decisions with it.
    signs_in: bool = True

    @property
    def verification_key(self) -> VerificationKey:
        return VerificationKey(base64url.decode(self.public_key), self.rp_id, self.origin, self.sign_count)


class PasskeyTable:
    """The passkeys of one space."""

    def __init__(self) -> None:
        self.by_id: dict[str, Passkey] = {}
        # Who had one at any time: theirs comes back by a link alone.
        self.known: set[Name] = set()
        # Challenges of sign-ins and of new keys that were used, until they end by themselves.
        self._used: dict[str, float] = {}

    def of(self, name: Name) -> list[Passkey]:
        return [key for key in self.by_id.values() if key.member == name]

    def check_new(self, key: Passkey, *, proven: bool, first_by_link: bool) -> None:
        """Raises Refused when this key cannot be added. `proven`: with another one of the same member."""
        if key.id in self.by_id:
            raise InvalidOperation("this passkey is registered already")
        if len(self.of(key.member)) >= MAX_PASSKEYS_PER_MEMBER:
            raise ResourceLimit(
                f"{key.member} has {MAX_PASSKEYS_PER_MEMBER} passkeys: remove one first",
                limit="max_passkeys_per_member",
            )
        if key.by_link or proven:
            return
        if self.of(key.member):
            raise PasskeyRequired("confirm with a passkey that you have, or ask your operator for a link")
        if key.member in self.known or first_by_link:
            raise Unauthorized("ask your operator for a link (moot passkeys link NAME) to add a passkey")

    def add(self, key: Passkey) -> None:
        self.by_id[key.id] = key
        self.known.add(key.member)

    def remove(self, ids: Sequence[str]) -> None:
        for id in ids:
            self.by_id.pop(id, None)

    def find(self, member: Name | None, assertion: Assertion) -> Passkey:
        """The key that an assertion names; raises PasskeyInvalid if it is not this member's."""
        key = self.by_id.get(assertion.credential_id)
        if key is None or (member is not None and key.member != member):
            raise PasskeyInvalid("this passkey is not one of yours here, or was removed: use another")
        return key

    def verify(self, key: Passkey, assertion: Assertion, challenge: bytes) -> None:
        """Raises PasskeyInvalid; changes nothing."""
        verify_assertion(key.verification_key, assertion, challenge)

    def note_use(self, key: Passkey, assertion: Assertion, now: float) -> None:
        """Remember its counter, by which a copy would be noticed."""
        count = int.from_bytes(base64url.decode(assertion.authenticator_data)[33:37], "big")
        self.by_id[key.id] = msgspec.structs.replace(key, sign_count=count, used_at=now)

    def check_unused(self, challenge: bytes, now: float) -> None:
        """Raises PasskeyInvalid for a challenge that was used, ResourceLimit if there is no room for more."""
        if challenge_key(challenge) in self._used:
            raise PasskeyInvalid("this was used before: start again")
        if sum(until > now for until in self._used.values()) >= _MAX_USED:
            raise ResourceLimit("too many sign-ins at once: try again in a minute", limit="max_sign_ins")

    def note_challenge(self, challenge: bytes, expires: float, now: float) -> None:
        """Use a challenge up."""
        if len(self._used) >= _MAX_USED:
            self._used = {each: until for each, until in self._used.items() if until > now}
        self._used[challenge_key(challenge)] = expires

    def save(self) -> dict[str, Json]:
        """Empty while there is nothing."""
        if not self.known and not self._used:
            return {}
        return {
            "keys": [msgspec.to_builtins(key) for key in self.by_id.values()],
            "known": sorted(self.known),
            "used": dict(self._used),
        }

    @classmethod
    def load(cls, saved: dict[str, Any]) -> PasskeyTable:
        table = cls()
        for row in saved.get("keys", ()):
            key = msgspec.convert(row, Passkey)
            table.by_id[key.id] = key
        table.known = {Name(name) for name in saved.get("known", ())}
        table._used = dict(saved.get("used", {}))
        return table

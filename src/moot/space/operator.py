"""What the operator of a gateway does to a space: reload, change rights, restore, and report health.

Like every other input these carry the time and a mint, and return effects.
"""

from __future__ import annotations

from collections.abc import Sequence

from moot.errors import InvalidOperation, ParticipantNotFound
from moot.protocol.close_codes import POLICY
from moot.protocol.envelope import rfc3339
from moot.protocol.operation import Json
from moot.protocol.patterns import Capability
from moot.space.acts.invites import remove_member
from moot.space.acts.streams import close_by_gateway
from moot.space.config import Name, ParticipantConfig, SpaceConfig
from moot.space.effects import Credential, Disconnect, Effect, Mint, Result, Token
from moot.space.membership import leave
from moot.space.roster import SpaceMember
from moot.space.send_rate import SendRate
from moot.space.state import State


class Operator:
    """The operator's side of a space; `Space` adds the members' side."""

    def __init__(self, state: State) -> None:
        self.state = state

    def save(self) -> dict[str, Json]:
        """The whole state as JSON values; `Space.restore` gives the same space back."""
        return self.state.save()

    def admits(self, token_hash: str) -> Name | None:
        """Whose token this is, if anybody's here."""
        for member in self.state.roster:
            if token_hash in member.credentials and not member.kicked:
                return member.name
        return None

    def health(self, *, journal_able: bool) -> list[Effect]:
        """D-85: whether the journal can be written decides what is accepted."""
        self.state.journal_able = journal_able
        return []

    def change_capabilities(
        self,
        name: str,
        add: Sequence[Capability],
        remove: Sequence[Capability],
        by: str,
        now: float,
        mint: Mint,
    ) -> list[Effect]:
        """MCPx 10.3, D-55: change a member's static rights, all or nothing; grants may fall with them."""
        state = self.state
        member = state.roster.find(name)
        old = member.rights.capabilities
        # By meaning, not by spelling: "*" in a configuration is {kind: "*"} (D-90).
        meant = [capability.view("mew") or capability.original for capability in remove]
        kept = [held for held in member.static if (held.view("mew") or held.original) not in meant]
        there = [held.view("mew") or held.original for held in member.static]
        not_held = [c.original for c, meaning in zip(remove, meant, strict=True) if meaning not in there]
        member.static = tuple(dict.fromkeys([*kept, *add]))
        effects = state.welcome_again(state.let_grants_fall(), now, mint)
        fields: dict[str, Json] = {
            "participantId": member.id,
            "oldCapabilities": [capability.original for capability in old],
            "newCapabilities": [capability.original for capability in member.rights.capabilities],
            "modifiedBy": by,
            "modifiedAt": rfc3339(now),
        }
        if not_held:
            # Nobody should believe that a right is gone which was never here, or was granted by a member.
            fields["notRemoved"] = not_held
        return [*effects, Result(None, fields)]

    def restore_member(self, name: str, mint: Mint) -> list[Effect]:
        """D-24: undo a kick. The old token stays void, so a new one is minted."""
        state = self.state
        member = state.roster.members.get(Name(name))
        if member is None:
            raise ParticipantNotFound(f"no participant {name!r} in this space", participant_id=name)
        if not member.kicked:
            raise InvalidOperation(f"{name} was not removed")
        member.kicked = member.anonymous = False
        token = mint.token()
        member.credentials = (token.hash,)
        state.refresh(member)
        fields: dict[str, Json] = {"participant_id": name, "status": "restored"}
        if token.secret is not None:
            fields["token"] = token.secret
        return [Credential(member.name, member.credentials), Result(None, fields)]

    def rotate_credential(self, name: str, token: Token, *, keep: bool) -> list[Effect]:
        """Give a member another token; without `keep` the earlier ones are void from now on."""
        member = self.state.roster.find(name)
        member.credentials = (*(member.credentials if keep else ()), token.hash)
        return [Credential(member.name, member.credentials)]

    def _turn_out(self, member: SpaceMember, reason: str, now: float, mint: Mint) -> list[Effect]:
        """Close a member's connections; it may come back under its own name."""
        effects: list[Effect] = []
        for session in list(member.sessions.values()):
            effects.append(Disconnect(session.id, POLICY, reason))
            effects += leave(self.state, session.id, now, mint)
        return effects

    def reload(self, config: SpaceConfig, now: float, mint: Mint) -> list[Effect]:
        """Take a new configuration over; nobody but removed participants is disconnected.

        Invited members and grants stay, and so does what an operator changed since, unless the configuration
        itself says something else now. A participant that it no longer names is removed.
        """
        state = self.state
        effects: list[Effect] = []
        for member in list(state.roster):
            if member.configured is None or member.name in config.participants:
                continue
            member.configured = None
            if not member.kicked:
                effects += remove_member(state, member, "no longer a participant", now, mint)
                state.roster.remove(member)
        for name in config.participants:
            # A newly named participant is nobody who came in under that name as a guest or runtime id (D-19).
            impostor = state.roster.aliases.get(name) or state.roster.members.get(Name(name))
            if impostor is not None and (impostor.anonymous or impostor.name != name):
                effects += self._turn_out(impostor, f"the name {name} is taken now", now, mint)
        state.config = config
        state.limits = config.limits
        state.pace = SendRate.of(config.limits)
        state.window.resize(config.limits.max_recent_ids)
        state.ledger.most_settled = config.limits.max_settled_proposals
        for name, participant in config.participants.items():
            effects += self._configure(Name(name), participant)
        state.membership_changed()
        return effects + state.welcome_again(state.let_grants_fall(), now, mint)

    def _configure(self, name: Name, participant: ParticipantConfig) -> list[Effect]:
        """Bring one participant in line with what the configuration newly says of it."""
        member = self.state.roster.members.get(name)
        if member is None:
            member = SpaceMember(name)
            self.state.roster.add(member)
        before, member.configured = member.configured, participant
        member.anonymous = False
        if before is None or before.capabilities != participant.capabilities:
            member.static = participant.capabilities
        member.exclusive = participant.exclusive
        if member.kicked or (before is not None and before.credentials == participant.credentials):
            return []
        member.credentials = participant.credentials
        return [Credential(name, member.credentials)]

    def restart(self, now: float, mint: Mint) -> list[Effect]:
        """The gateway came back without its connections: everyone has left, and streams end with a reason."""
        effects: list[Effect] = []
        for stream in list(self.state.streams.open.values()):
            effects += close_by_gateway(self.state, stream, "gateway_restarted", now, mint)
        for session in list(self.state.roster.sessions):
            effects += leave(self.state, session, now, mint)
        return effects

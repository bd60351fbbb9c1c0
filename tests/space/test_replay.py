"""The same inputs give the same space: restart, audit and clustering are replay (D-41, D-89).

A random walk is journaled as inputs with their time and what their mint drew. Then it is played again:
whole, with a restart in the middle, with the secrets forgotten, and without what changed nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

import pytest

from moot.errors import Refused
from moot.protocol.payloads import GatewayNotice
from moot.space.acts import membership
from moot.space.config import SessionId
from moot.space.effects import Deliver, Disconnect, Effect, Token
from moot.space.members.member import Options
from moot.space.space import Space
from moot.space.state_hash import hash_state
from moot.space.tokens import temporary_tokens

from .inputs import CONFIG, Input, feed
from .random_moves import MOVES, populate
from .random_walk import RandomDraw
from .reference_model import ReferenceModel

STEPS = 400
SEEDS = range(4)
seeds = pytest.mark.parametrize("seed", SEEDS)


@pytest.fixture(autouse=True)
def few_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a walk meets the limit."""
    monkeypatch.setattr(temporary_tokens, "MAX_TOKENS_PER_MEMBER", 4)


class DrawnMint:
    """Gives out again what a recorded input drew, and nothing more."""

    def __init__(self, draws: Sequence[str | Token]) -> None:
        self._draws = iter(draws)

    def id(self) -> str:
        drawn = next(self._draws)
        assert isinstance(drawn, str)
        return drawn

    def token(self) -> Token:
        drawn = next(self._draws)
        assert isinstance(drawn, Token)
        return drawn


@cache
def walked(seed: int) -> ReferenceModel:
    """A model after some hundred steps; only its journal and its end are looked at."""
    model, draw = ReferenceModel(), RandomDraw(seed)
    model.put("join", SessionId("host"), "root", "mew", Options())
    # A token is drawn for every one who is invited.
    model.send("host", "space/invite", {"participant_id": "ivy"})
    model.put("leave", SessionId("host"))
    populate(model, draw)
    for number in range(STEPS):
        if not number % 50:
            # Otherwise most of a walk is refused to those who are left.
            model.put("health", True)
            model.put("restore_member", "human")
            populate(model, draw)
        if not number % 3:
            MOVES[draw.one(("grant", "use_grant", "mint_token"))](model, draw)
        MOVES[draw.one(list(MOVES))](model, draw)
    return model


def played(space: Space, journal: Sequence[Input]) -> Iterator[list[Effect]]:
    """Feed the journal to the space; what each input brings about, a refused one nothing."""
    for given in journal:
        try:
            yield feed(space, given, DrawnMint(given.draws))
        except Refused:
            yield []


def test_the_walks_meet_all_that_ends_by_itself() -> None:
    """Otherwise they would show nothing of it."""
    done: set[str] = set()
    for seed in SEEDS:
        journal = walked(seed).journal
        done |= {given.what for given in journal if not given.refused}
        for effects in played(Space(CONFIG), journal):
            for effect in effects:
                if isinstance(effect, Deliver) and isinstance(effect.message, GatewayNotice):
                    done.add(str(effect.message.payload.get("reason")))
                elif isinstance(effect, Disconnect):
                    done.add(effect.reason)
    assert done >= {"sign_in", "add_token", "renew", "sign_out", "rotate_credential", "drop_sessions"}
    assert done >= {"restart", "note_wall_clock", "expired", "used_up"}
    assert membership.ENDED in done


@seeds
def test_the_same_inputs_give_the_same_effects_and_the_same_state(seed: int) -> None:
    """D-89: nothing in a space depends on anything but its inputs."""
    journal = walked(seed).journal
    first, second = Space(CONFIG), Space(CONFIG)
    assert list(played(first, journal)) == list(played(second, journal))
    assert first.save() == second.save() == walked(seed).space.save()


@seeds
def test_a_restart_anywhere_changes_nothing_that_follows(seed: int) -> None:
    """D-41: snapshot plus replay; the snapshot goes through JSON text as it does on disk."""
    journal = walked(seed).journal
    whole = Space(CONFIG)
    effects = list(played(whole, journal))
    for at in range(0, len(journal), 151):
        before = Space(CONFIG)
        list(played(before, journal[:at]))
        after = Space(before.state.config, saved=json.loads(json.dumps(before.save())))
        assert after.save() == before.save()
        assert list(played(after, journal[at:])) == effects[at:], f"restart before input {at}"
        assert hash_state(after.save()) == hash_state(whole.save()), f"restart before input {at}"


@seeds
def test_restarting_before_every_single_input_ends_in_the_same_state(seed: int) -> None:
    """D-41: nothing lives between two inputs that is not saved."""
    space = Space(CONFIG)
    for given in walked(seed).journal[:150]:
        space = Space(space.state.config, saved=space.save())
        list(played(space, [given]))
    straight = Space(CONFIG)
    list(played(straight, walked(seed).journal[:150]))
    assert hash_state(space.save()) == hash_state(straight.save())


@seeds
def test_replay_needs_no_secret_and_the_saved_state_holds_none(seed: int) -> None:
    """D-41, D-89: tokens only as hashes."""
    journal = [replace(given, draws=tuple(map(_forgotten, given.draws))) for given in walked(seed).journal]
    space = Space(CONFIG)
    list(played(space, journal))
    assert space.save() == walked(seed).space.save()
    text = json.dumps(walked(seed).space.save())
    drawn = [draw for given in walked(seed).journal for draw in given.draws if isinstance(draw, Token)]
    assert drawn
    assert not any(token.secret is None or token.secret in text for token in drawn)


def _forgotten(draw: str | Token) -> str | Token:
    return Token(draw.hash) if isinstance(draw, Token) else draw


@seeds
def test_what_was_refused_can_be_left_out(seed: int) -> None:
    """Ladder: a refused input changes nothing."""
    kept = [given for given in walked(seed).journal if not given.refused]
    assert len(kept) < len(walked(seed).journal)
    space = Space(CONFIG)
    list(played(space, kept))
    assert space.save() == walked(seed).space.save()


@seeds
def test_frames_can_be_left_out(seed: int) -> None:
    """D-89: frames read the state and never change it."""
    kept = [given for given in walked(seed).journal if given.what != "frame"]
    space = Space(CONFIG)
    list(played(space, kept))
    assert space.save() == walked(seed).space.save()


def test_a_restored_space_keeps_a_humans_decisions() -> None:
    """D-41: grants, kicks and pauses survive a restart."""
    model = ReferenceModel()
    model.put("join", "h", "human", "mew", Options())
    model.put("join", "a", "agent", "mew", Options())
    right = {"kind": "mcp/request"}
    model.send("h", "capability/grant", {"recipient": "agent", "capabilities": [right]}, id="g1")
    model.send("h", "participant/pause", {}, to=["agent"])
    model.send("h", "space/kick", {"participant_id": "tool"})
    state = Space(model.space.state.config, saved=json.loads(json.dumps(model.space.save()))).state
    agent = state.roster.find("agent")
    assert right in [capability.original for capability in agent.rights.capabilities]
    assert agent.pause is not None
    assert state.roster.resolve("tool") is None
    assert "g1" in state.window

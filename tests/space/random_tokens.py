"""What happens to short-lived tokens, people who sign in elsewhere, clocks and gateways, drawn at random.

Like `random_moves`, of which these are a part: wrong tokens, other people's names and late timers come too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from moot.protocol.patterns import read_capability
from moot.space.config import Name, SessionId
from moot.space.effects import Token
from moot.space.members.member import Options, capability_pairs
from moot.space.tokens.temporary_tokens import SignIn, TemporaryToken

from .reference_model import ReferenceModel

if TYPE_CHECKING:
    from .random_moves import Draw

SIGNED_IN: Final = ("ana", "abe")
RIGHTS: Final = ({"kind": "chat"}, {"kind": "mcp/*"}, {"kind": "capability/*"}, {"kind": "*"})


def _token(model: ReferenceModel, draw: Draw) -> str:
    """The hash of a token, likely of one that there is."""
    known = list(model.space.state.temporary_tokens.by_hash)
    return draw.one([*known[-8:], *known[-8:], "never-was"])


def sign_in(model: ReferenceModel, draw: Draw) -> None:
    """With a new token or one that is known, as oneself or under the name of somebody else."""
    name = draw.one((*SIGNED_IN, *SIGNED_IN, "agent", "ivy", "gus"))
    token = TemporaryToken(
        hash=draw.one((model.fresh("jwt"), model.fresh("jwt"), _token(model, draw))),
        member=Name(name),
        expires_at=model.now + draw.one((4.0, 40.0, 400.0)),
        source="sign_in",
        keys=(draw.one((f"sub-{name}", f"sub-{name}", f"sub-{name}", "sub-mallory")), model.fresh("sid-")),
        issued_at=model.now - draw.one((0.0, 1.0, 30.0)),
        client=draw.one(("console", "agent")),
    )
    rights = capability_pairs([read_capability(draw.one(RIGHTS)) for _ in range(draw.one((1, 2)))])
    who = SignIn(token=token, capabilities=draw.one((rights, rights, rights, None)))
    if model.put("sign_in", who).refusal is None and draw.one((True, False)):
        _join(model, draw, token.hash)


def mint_token(model: ReferenceModel, draw: Draw) -> None:
    """A short-lived one for somebody, now and then a child of one from elsewhere, with all rights or some."""
    member = draw.one([*(member.name for member in model.space.state.roster if member.name != "root"), "ivy"])
    parents = [token.keys for token in model.space.state.temporary_tokens.of(Name(member))]
    token = TemporaryToken(
        hash=model.fresh("short"),
        member=Name(member),
        expires_at=model.now + draw.one((4.0, 40.0)),
        limited_to=draw.one((None, capability_pairs([read_capability(draw.one(RIGHTS))]))),
        keys=draw.one([(), *parents]),
        issued_at=model.now - draw.one((0.0, 30.0)),
    )
    if model.put("add_token", token).refusal is None and draw.one((True, False)):
        _join(model, draw, token.hash)


def join_with_token(model: ReferenceModel, draw: Draw) -> None:
    _join(model, draw, _token(model, draw))


def _join(model: ReferenceModel, draw: Draw, token_hash: str) -> None:
    """As the gateway lets somebody in: what the token carries is among the options."""
    state = model.space.state
    token = state.temporary_tokens.get(token_hash)
    if token is not None:
        options = Options(token=token_hash, limited_to=token.limited_to, echo=draw.one((True, False)))
        model.put("join", SessionId(model.fresh("s")), token.member, draw.one(("mew", "mcpx")), options)


def renew(model: ReferenceModel, draw: Draw) -> None:
    admitted = [s.id for s in model.space.state.roster.sessions.values() if s.options.token is not None]
    model.put("renew", draw.one([*admitted, SessionId("nobody")]), _token(model, draw))


def sign_out(model: ReferenceModel, draw: Draw) -> None:
    tokens = model.space.state.temporary_tokens.by_hash.values()
    keys = draw.one([*(token.keys[-1:] for token in tokens), ("sub-ana",), ("sub-abe", "sub-nobody")])
    model.put("sign_out", keys, model.now - draw.one((0.0, 2.0)), model.now + draw.one((10.0, 500.0)))


def rotate(model: ReferenceModel, draw: Draw) -> None:
    name = draw.one(("human", "agent", *SIGNED_IN))
    model.put("rotate_credential", name, Token(model.fresh("hash")), draw.one((True, False)))


def be_late(model: ReferenceModel, draw: Draw) -> None:
    """Time passes and no timer has come yet."""
    model.now += draw.one((0.5, 5.0, 31.0))
    model.put("health", model.space.state.journal_writable)


def set_clock(model: ReferenceModel, draw: Draw) -> None:
    model.put("note_wall_clock", model.now + draw.one((-100.0, 0.0, 20.0, 200.0)))


def lose_gateway(model: ReferenceModel, draw: Draw) -> None:
    """The gateway of some connections is gone."""
    gone = [SessionId(draw.one([*model.sessions, "nobody"])) for _ in range(2)]
    model.put("drop_sessions", gone)

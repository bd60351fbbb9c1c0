"""Tokens that end by themselves, in the pure space: told the time, and never lifted by anything else."""

from __future__ import annotations

import msgspec
import pytest

from moot.errors import ResourceLimit, Unauthorized
from moot.gateway.hosting.mint import FreshMint
from moot.protocol.patterns import read_capabilities
from moot.space.config import Name, ParticipantConfig, SessionId, SpaceConfig, SpaceLimits
from moot.space.effects import Disconnect, Token
from moot.space.members.member import MAX_SIGN_IN_CLIENTS, Options, capability_pairs
from moot.space.space import Space
from moot.space.tokens.temporary_tokens import MAX_TOKENS_PER_MEMBER, SignIn, TemporaryToken

CHAT = capability_pairs(read_capabilities(["chat"], place="mcpx"))
ALL = ParticipantConfig(capabilities=read_capabilities([{"kind": "*"}]), credentials=("static",))


def space(**limits: int) -> Space:
    config = SpaceConfig(name="lab", participants={"root": ALL}, limits=SpaceLimits(**limits))  # type: ignore[arg-type]
    return Space(config)


def person(name: str = "ana", *, token: str = "t-1", ends: float = 100.0, issued: float = 50.0) -> SignIn:
    temporary = TemporaryToken(
        hash=token,
        member=Name(name),
        expires_at=ends,
        source="sign_in",
        keys=(f"sub-{name}", f"sid-{token}"),
        issued_at=issued,
    )
    return SignIn(token=temporary, capabilities=CHAT)


def join(lab: Space, name: str, token: str, session: str = "s-1") -> None:
    options = Options(token=token)
    lab.join(SessionId(session), name, "mew", options, 10.0, FreshMint())


def test_a_token_ends_its_sessions_at_its_time_and_no_others() -> None:
    lab = space()
    lab.sign_in(person(), 10.0, FreshMint())
    join(lab, "ana", "t-1")
    join(lab, "root", "static", "s-2")
    assert lab.next_deadline() == 100.0
    assert lab.expire(99.9, FreshMint()) == []
    (first, *_) = lab.expire(100.0, FreshMint())
    assert isinstance(first, Disconnect)
    assert (first.session, first.code) == ("s-1", 4003)
    assert list(lab.state.roster.sessions) == ["s-2"]
    assert lab.find_token_owner("t-1") is None


def test_a_saved_space_knows_tokens_and_sign_outs() -> None:
    lab = space()
    lab.sign_in(person(), 10.0, FreshMint())
    lab.sign_out(["sub-bob"], issued_before=60.0, forget_at=1_000.0, now=20.0, mint=FreshMint())
    again = Space(lab.state.config, saved=lab.save())
    assert again.save() == lab.save()
    assert again.next_deadline() == 100.0
    assert again.find_token_owner("t-1") == "ana"
    with pytest.raises(Unauthorized, match="signed out"):
        again.sign_in(person("bob", token="t-2", issued=60.0), 30.0, FreshMint())
    again.sign_in(person("bob", token="t-3", issued=61.0), 30.0, FreshMint())


def test_a_reload_lifts_no_limit_of_a_short_lived_token_and_ends_none_of_its_sessions() -> None:
    lab = space()
    minted = TemporaryToken(hash="t-m", member=Name("root"), expires_at=100.0, limited_to=CHAT)
    lab.add_token(minted)
    join(lab, "root", "t-m")
    session = lab.state.roster.sessions[SessionId("s-1")]
    session.limit_to(lab.state.token_limit("t-m"))
    assert [right.original for right in session.rights.capabilities] == ["chat"]
    lab.reload(lab.state.config, 20.0, FreshMint())
    assert lab.state.roster.sessions[SessionId("s-1")] is session
    assert [right.original for right in session.rights.capabilities] == ["chat"]


def test_another_token_for_the_member_ends_what_was_minted_for_the_old_one() -> None:
    lab = space()
    lab.add_token(TemporaryToken(hash="t-m", member=Name("root"), expires_at=100.0))
    join(lab, "root", "t-m")
    lab.rotate_credential("root", Token("new"), 20.0, FreshMint(), keep=True)
    assert lab.find_token_owner("t-m") == "root"
    effects = lab.rotate_credential("root", Token("newer"), 20.0, FreshMint(), keep=False)
    assert any(isinstance(effect, Disconnect) for effect in effects)
    assert lab.find_token_owner("t-m") is None


def test_after_a_restart_only_tokens_of_the_gateway_are_known() -> None:
    lab = space()
    lab.sign_in(person(), 10.0, FreshMint())
    lab.add_token(TemporaryToken(hash="t-m", member=Name("root"), expires_at=100.0))
    lab.restart(20.0, FreshMint())
    assert lab.find_token_owner("t-1") is None
    assert lab.find_token_owner("t-m") == "root"
    lab.restart(30.0, FreshMint(), clock_lost=True)
    assert lab.find_token_owner("t-m") is None


def test_of_too_many_tokens_of_one_member_the_first_to_end_that_is_not_in_use_goes() -> None:
    lab = space()
    for number in range(MAX_TOKENS_PER_MEMBER):
        lab.sign_in(person(token=f"t-{number}", ends=100.0 + number), 10.0, FreshMint())
    join(lab, "ana", "t-0")
    lab.sign_in(person(token="more"), 10.0, FreshMint())
    assert lab.find_token_owner("t-0") == "ana"
    assert lab.find_token_owner("t-1") is None
    assert len(lab.state.temporary_tokens.of(Name("ana"))) == MAX_TOKENS_PER_MEMBER


def test_members_that_sign_in_have_a_number() -> None:
    lab = space(max_signed_in_members=1)
    lab.sign_in(person(), 10.0, FreshMint())
    lab.sign_in(person(token="t-2"), 10.0, FreshMint())
    with pytest.raises(ResourceLimit) as refused:
        lab.sign_in(person("bob", token="t-3"), 10.0, FreshMint())
    assert refused.value.details["limit"] == "max_signed_in_members"


def test_a_sign_in_that_is_refused_changes_nothing() -> None:
    """It is in no journal, so that a restart would not know of it."""
    lab = space(max_sessions_per_member=MAX_TOKENS_PER_MEMBER)
    for number in range(MAX_TOKENS_PER_MEMBER):
        lab.sign_in(person(token=f"m-{number}"), 10.0, FreshMint())
        join(lab, "ana", f"m-{number}", session=f"s-{number}")
    before = lab.save()
    more = capability_pairs(read_capabilities([{"kind": "*"}]))
    with pytest.raises(ResourceLimit) as refused:
        lab.sign_in(msgspec.structs.replace(person(token="t-2"), capabilities=more), 20.0, FreshMint())
    assert refused.value.details["limit"] == "max_tokens_per_member"
    assert lab.save() == before


def test_a_token_never_becomes_another_members() -> None:
    """Its connections would stay with the member that it was given up by."""
    lab = space()
    lab.sign_in(person(), 10.0, FreshMint())
    join(lab, "ana", "t-1")
    before = lab.save()
    with pytest.raises(Unauthorized, match="another participant's"):
        lab.sign_in(person("bob", token="t-1"), 20.0, FreshMint())
    with pytest.raises(Unauthorized, match="another participant's"):
        lab.add_token(TemporaryToken(hash="t-1", member=Name("root"), expires_at=100.0))
    assert lab.save() == before


def test_when_the_wall_clock_is_set_ahead_tokens_end_that_are_over_by_it() -> None:
    """As grants for a time do: a machine may have started with an old time. Set back, it changes nothing."""
    lab = space()
    lab.sign_in(person(ends=100.0), 10.0, FreshMint())
    lab.add_token(TemporaryToken(hash="t-m", member=Name("root"), expires_at=100.5))
    join(lab, "ana", "t-1")
    assert lab.note_wall_clock(1.0, 20.0, FreshMint()) == []
    assert lab.note_wall_clock(99.9, 20.0, FreshMint()) == []
    (first, *_) = lab.note_wall_clock(100.0, 20.0, FreshMint())
    assert isinstance(first, Disconnect)
    assert lab.find_token_owner("t-1") is None
    assert lab.find_token_owner("t-m") == "root"
    assert not lab.state.roster.sessions


def test_what_somebody_made_with_a_token_of_a_provider_ends_with_it_at_a_restart() -> None:
    """Rules may be others now. Tokens of the configuration stay, and so does what was made with them."""
    lab = space()
    lab.sign_in(person(), 10.0, FreshMint())
    parent = lab.state.temporary_tokens.get("t-1")
    assert parent is not None
    lab.add_token(msgspec.structs.replace(parent, hash="t-child", source="minted"))
    lab.add_token(TemporaryToken(hash="t-root", member=Name("root"), expires_at=100.0))
    lab.restart(20.0, FreshMint())
    assert lab.find_token_owner("t-child") is None
    assert lab.find_token_owner("t-root") == "root"


def test_an_older_token_gets_nothing_back_when_its_client_is_forgotten() -> None:
    """Of too many clients one is forgotten, and with it that its newest token gave less."""
    lab = space()
    lab.sign_in(person(), 10.0, FreshMint())
    join(lab, "ana", "t-1")
    less = msgspec.structs.replace(person(token="t-2", issued=51.0), capabilities=())
    lab.sign_in(less, 10.0, FreshMint())
    session = lab.state.roster.sessions[SessionId("s-1")]
    assert session.rights.capabilities == ()
    for number in range(MAX_SIGN_IN_CLIENTS):
        other = person(token=f"t-of-{number}", issued=60.0)
        token = msgspec.structs.replace(other.token, client=f"client-{number}")
        lab.sign_in(msgspec.structs.replace(other, token=token), 10.0, FreshMint())
    assert "" not in session.member.signed_in
    assert session.rights.capabilities == ()


@pytest.mark.parametrize("ended", ["t-1", "static"])
def test_a_token_is_not_made_with_one_that_has_ended_meanwhile(ended: str) -> None:
    """In a cluster it was asked for before the end of the other was known."""
    lab = space()
    lab.sign_in(person(), 10.0, FreshMint())
    owner = lab.find_token_owner(ended)
    assert owner is not None
    lab.sign_out((), issued_before=0.0, forget_at=1_000.0, now=20.0, mint=FreshMint(), tokens=[ended])
    before = lab.save()
    with pytest.raises(Unauthorized, match="no longer valid"):
        lab.add_token(TemporaryToken(hash="made", member=owner, expires_at=90.0, made_with=ended))
    assert lab.save() == before


def test_a_token_is_not_made_by_an_administrator_who_was_signed_out_meanwhile() -> None:
    lab = space()
    lab.sign_out(["sub-ana"], issued_before=60.0, forget_at=1_000.0, now=20.0, mint=FreshMint())
    made = TemporaryToken(
        hash="made", member=Name("root"), expires_at=90.0, keys=("sub-ana",), issued_at=50.0
    )
    with pytest.raises(Unauthorized, match="signed out"):
        lab.add_token(made)
    # What an earlier version has accepted is replayed.
    lab.state.set_replaying(True)
    lab.add_token(made)


def test_a_token_that_is_revoked_takes_along_all_that_was_made_with_it() -> None:
    lab = space()
    for made, parent in (("child", "static"), ("grandchild", "child"), ("other", "")):
        lab.add_token(TemporaryToken(hash=made, member=Name("root"), expires_at=100.0, made_with=parent))
    join(lab, "root", "grandchild")
    effects = lab.sign_out(
        (), issued_before=0.0, forget_at=1_000.0, now=20.0, mint=FreshMint(), tokens=["static"]
    )
    assert any(isinstance(effect, Disconnect) for effect in effects)
    assert [lab.find_token_owner(each) for each in ("child", "grandchild", "other")] == [None, None, "root"]


def test_a_token_that_gave_way_to_others_hides_nothing_that_was_made_with_it() -> None:
    lab = space()
    for made, parent in (("child", "static"), ("grandchild", "child")):
        lab.add_token(TemporaryToken(hash=made, member=Name("root"), expires_at=100.0, made_with=parent))
    for number in range(MAX_TOKENS_PER_MEMBER - 1):
        lab.add_token(TemporaryToken(hash=f"m-{number}", member=Name("root"), expires_at=200.0))
    assert lab.find_token_owner("child") is None
    assert lab.find_token_owner("grandchild") == "root"
    lab.sign_out((), issued_before=0.0, forget_at=1_000.0, now=20.0, mint=FreshMint(), tokens=["static"])
    assert lab.find_token_owner("grandchild") is None


def test_a_space_made_after_another_lets_nobody_sign_in_who_was_removed_or_signed_out_there() -> None:
    lab = space()
    lab.sign_in(person("ana"), 10.0, FreshMint())
    lab.state.roster.members[Name("ana")].kicked = True
    lab.sign_out(["sub-bob"], issued_before=60.0, forget_at=1_000.0, now=20.0, mint=FreshMint())
    garden = space()
    garden.begin_like(lab)
    for refused in (person("ana", token="t-2", issued=70.0), person("bob", token="t-3", issued=60.0)):
        with pytest.raises(Unauthorized):
            garden.sign_in(refused, 30.0, FreshMint())
    garden.sign_in(person("bob", token="t-4", issued=61.0), 30.0, FreshMint())

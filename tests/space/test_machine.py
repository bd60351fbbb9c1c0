"""A whole space under every input there is, in every order that Hypothesis can think of.

The moves are in `random_moves`, what must hold after each of them in `invariants`. The seed is fixed, so that
a run in CI is the same run everywhere; `MOOT_MACHINE_EXAMPLES=5000` looks further, with fresh seeds.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.examples import examples

from . import invariants, random_moves
from .random_moves import MOVES, T
from .random_walk import remove_everybody, run_space_walk
from .reference_model import ReferenceModel

EXAMPLES = int(os.environ.get("MOOT_MACHINE_EXAMPLES", "0"))


class DataDraw:
    """Chance from Hypothesis, which can then shrink it."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data

    def one(self, choices: Sequence[T]) -> T:
        return self._data.draw(st.sampled_from(choices))


class SpaceMachine(RuleBasedStateMachine):
    """Mixed dialects, several sessions, guests, posts, a quorum, and everybody's every act."""

    def __init__(self) -> None:
        super().__init__()
        self.model = ReferenceModel()

    def _move(self, name: str, data: st.DataObject) -> None:
        MOVES[name](self.model, DataDraw(data))

    @initialize(data=st.data())
    def populate(self, data: st.DataObject) -> None:
        random_moves.populate(self.model, DataDraw(data))

    @rule(data=st.data())
    def join(self, data: st.DataObject) -> None:
        self._move("join", data)

    @rule(data=st.data())
    def join_as_guest(self, data: st.DataObject) -> None:
        self._move("join_as_guest", data)

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        self._move("leave", data)

    @rule(data=st.data())
    def post_over_http(self, data: st.DataObject) -> None:
        self._move("post_over_http", data)

    @rule(data=st.data())
    def wait(self, data: st.DataObject) -> None:
        self._move("wait", data)

    @rule(data=st.data())
    def chat(self, data: st.DataObject) -> None:
        self._move("chat", data)

    @rule(data=st.data())
    def forge(self, data: st.DataObject) -> None:
        self._move("forge", data)

    @rule(data=st.data())
    def request(self, data: st.DataObject) -> None:
        self._move("request", data)

    @rule(data=st.data(), name=st.sampled_from(["respond", "answer"]))
    def answer(self, data: st.DataObject, name: str) -> None:
        self._move(name, data)

    @rule(data=st.data())
    def propose(self, data: st.DataObject) -> None:
        self._move("propose", data)

    @rule(data=st.data(), name=st.sampled_from(["fulfil", "fulfil", "fulfil_something_else"]))
    def fulfil(self, data: st.DataObject, name: str) -> None:
        self._move(name, data)

    @rule(data=st.data(), name=st.sampled_from(["withdraw", "reject", "approve"]))
    def decide(self, data: st.DataObject, name: str) -> None:
        self._move(name, data)

    @rule(data=st.data(), name=st.sampled_from(["grant", "use_grant"]))
    def grant(self, data: st.DataObject, name: str) -> None:
        self._move(name, data)

    @rule(data=st.data(), name=st.sampled_from(["revoke_by_id", "revoke_by_pattern"]))
    def revoke(self, data: st.DataObject, name: str) -> None:
        self._move(name, data)

    @rule(data=st.data())
    def invite(self, data: st.DataObject) -> None:
        self._move("invite", data)

    @rule(data=st.data(), name=st.sampled_from(["kick", "restore"]))
    def kick_or_restore(self, data: st.DataObject, name: str) -> None:
        self._move(name, data)

    @rule(data=st.data(), name=st.sampled_from(["change_capabilities", "reload", "health"]))
    def operate(self, data: st.DataObject, name: str) -> None:
        self._move(name, data)

    @rule(data=st.data(), name=st.sampled_from(["pause", "resume", "shutdown", "ask"]))
    def control(self, data: st.DataObject, name: str) -> None:
        self._move(name, data)

    @rule(data=st.data())
    def open_stream(self, data: st.DataObject) -> None:
        self._move("open_stream", data)

    @rule(
        data=st.data(),
        name=st.sampled_from(["close_stream", "grant_write", "revoke_write", "transfer", "write_to_stream"]),
    )
    def use_stream(self, data: st.DataObject, name: str) -> None:
        self._move(name, data)

    @rule(data=st.data(), name=st.sampled_from(["sign_in", "mint_token", "join_with_token", "renew"]))
    def use_token(self, data: st.DataObject, name: str) -> None:
        self._move(name, data)

    @rule(data=st.data(), name=st.sampled_from(["sign_out", "rotate"]))
    def void_token(self, data: st.DataObject, name: str) -> None:
        self._move(name, data)

    @rule(data=st.data(), name=st.sampled_from(["be_late", "set_clock", "lose_gateway", "restart"]))
    def go_wrong(self, data: st.DataObject, name: str) -> None:
        self._move(name, data)

    # What must hold

    @invariant()
    def every_right_has_a_chain(self) -> None:
        """D-16, D-18: a right is static, or a chain of grants leads to a static one."""
        invariants.every_right_has_a_chain(self.model)

    @invariant()
    def nobody_does_what_no_capability_allows(self) -> None:
        """MEW 4.2, D-15: what is accepted matches a right of its sender, or is owed."""
        invariants.nobody_does_what_no_capability_allows(self.model)

    @invariant()
    def a_proposal_runs_once_and_as_it_was_reviewed(self) -> None:
        """D-28: at most one execution, of exactly what was proposed."""
        invariants.a_proposal_runs_once_and_as_it_was_reviewed(self.model)

    @invariant()
    def only_the_asked_answer(self) -> None:
        """D-80: a request that names members is answered by one of them."""
        invariants.only_the_asked_answer(self.model)

    @invariant()
    def a_kicked_member_is_nowhere(self) -> None:
        """D-24: no session, grant, stream, open proposal, and on no list."""
        invariants.a_kicked_member_is_nowhere(self.model)

    @invariant()
    def the_paused_keep_quiet(self) -> None:
        """D-25: a paused member says only what the list allows."""
        invariants.the_paused_keep_quiet(self.model)

    @invariant()
    def the_shut_down_keep_quiet(self) -> None:
        """D-26: five seconds for three kinds, then nothing."""
        invariants.the_shut_down_keep_quiet(self.model)

    @invariant()
    def everyone_hears_once(self) -> None:
        """D-01, D-02, D-54: accepted, it reaches each listening session once; refused, nobody."""
        invariants.everyone_hears_once(self.model)

    @invariant()
    def frames_reach_their_targets(self) -> None:
        """D-36, D-57: from a writer, to the targets or to all who take frames."""
        invariants.frames_reach_their_targets(self.model)

    @invariant()
    def secrets_go_to_the_inviter_alone(self) -> None:
        """MEW 3.6.6: a token stands in the inviter's ack and nowhere else."""
        invariants.secrets_go_to_the_inviter_alone(self.model)

    @invariant()
    def only_the_gateway_speaks_for_itself(self) -> None:
        """D-10: reserved kinds come from the gateway."""
        invariants.only_the_gateway_speaks_for_itself(self.model)

    @invariant()
    def no_id_is_taken_twice(self) -> None:
        """D-07: not within the window, and never while what it names is open."""
        invariants.no_id_is_taken_twice(self.model)

    @invariant()
    def time_moves_on(self) -> None:
        """After `expire` nothing that is due is left."""
        invariants.time_moves_on(self.model)

    @invariant()
    def effects_name_living_sessions(self) -> None:
        """Every effect goes to a session that was there when it was made."""
        invariants.effects_name_living_sessions(self.model)

    @invariant()
    def no_change_of_a_verdict_is_missed(self) -> None:
        """The fast path keeps verdicts for one epoch."""
        invariants.no_change_of_a_verdict_is_missed(self.model)

    @invariant()
    def tables_agree(self) -> None:
        """Pins, counters, sessions, aliases and writers follow from each other."""
        invariants.tables_agree(self.model)

    def teardown(self) -> None:
        """Everybody removed and all time passed: nothing may be left behind."""
        remove_everybody(self.model)


TestSpaceMachine = SpaceMachine.TestCase
TestSpaceMachine.settings = settings(
    max_examples=EXAMPLES or examples(10),
    stateful_step_count=40,
    derandomize=not EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def test_a_long_random_walk_breaks_no_invariant() -> None:
    """Longer than Hypothesis goes: rooms of a thousand steps each, where limits and windows are met."""
    assert "invariants held" in run_space_walk(steps=5_000, seed=20_260_131)

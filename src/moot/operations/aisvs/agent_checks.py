"""C9: what a configuration says about agents. One function for each row that it can meet or miss."""

from __future__ import annotations

from collections.abc import Iterator

from moot.config.box_config import BoxConfig
from moot.operations.aisvs.deployment import Deployment, Verdict, judge, met, none
from moot.protocol.patterns import Rights

_STOPS = ("participant/pause", "space/kick")
# Weeks are no answer to a question that somebody waits for.
_LONGEST_PROPOSAL_SECONDS = 7 * 86_400


def bounded_tools(of: Deployment) -> Verdict:
    if not list(of.local_servers()):
        return none("no MCP server is started here; calls end after an hour at the latest")
    return judge(
        unboxed(of),
        change="give each server a `box:`, which bounds memory, processes and CPU time",
        otherwise="every server that is started has a box; calls end after an hour at the latest",
    )


def budgets(of: Deployment) -> Verdict:
    return judge(
        (
            f"{name} has no budget with at_most"
            for name, space in of.spaces.items()
            if not any(each.at_most is not None for each in space.config.budgets)
        ),
        change="set `budgets:` of the space, with at_most",
        otherwise="every space has a budget that nobody can exceed",
    )


def undo_classes(of: Deployment) -> Verdict:
    return judge(
        (
            f"{name} says of no call whether it can be undone"
            for name, space in of.spaces.items()
            if not any(each.undo for each in space.config.effects)
        ),
        change="say it in `effects:` of the space, with `undo: reversible`, `compensable` or `final`",
        otherwise="every space says of calls whether they can be undone, and tells whoever decides",
    )


def undo_decides(of: Deployment) -> Verdict:
    def unused() -> Iterator[str]:
        if any(rule.undo is not None for rule in of.rules):
            return
        for name, space in of.spaces.items():
            classed = {each.undo for each in space.config.effects}
            if not any(each.undo in classed for each in space.config.passkeys.required if each.undo):
                yield f"in {name} no passkey is asked for by it, and no rule goes by it"

    return judge(
        unused(),
        change="ask for a passkey by it (`passkeys:` with `undo: final`), or give rules `undo`",
        otherwise="a passkey is asked for, or rules decide, by whether a call can be undone",
    )


def stops(of: Deployment) -> Verdict:
    def without() -> Iterator[str]:
        for name, space in of.spaces.items():
            people = [space.config.participants[one] for one in of.overseers(name)]
            if not any(all(Rights(one.capabilities).allow_all(kind) for kind in _STOPS) for one in people):
                yield f"nobody in {name} but agents may pause and remove every member"

    return judge(
        without(),
        change=f"give a person {' and '.join(_STOPS)}",
        otherwise="somebody who is no agent may pause and remove every member of each space",
    )


def approval(of: Deployment) -> Verdict:
    def unasked() -> Iterator[str]:
        yield from of.free_callers()
        for rule in of.rules:
            if (
                rule.decision == "approve"
                and not rule.observe
                and rule.tool in (None, "*")
                and rule.ask is None
            ):
                yield f"the rule {rule.name} approves every tool"

    return judge(
        unasked(),
        change="let agents propose (`profile: proposal-only`), or name the tools that they may call",
        otherwise="no agent may call every tool of a server without an approval",
    )


def self_change(of: Deployment) -> Verdict:
    return judge(
        of.who_may("capability/grant", "space/invite", "trust/accept", "trust/rule"),
        change="take these rights from agents",
        otherwise="no agent may grant, invite, or change rules",
    )


def second_review(of: Deployment) -> Verdict:
    return judge(
        (
            f"no reviewer is started in {name}"
            for name, space in of.spaces.items()
            if not any("review" in (member.command or "", *member.args) for member in space.members.values())
        ),
        change="start `moot review` as a member",
        otherwise="every space has a reviewer beside its rules",
    )


def signed_approvals(of: Deployment) -> Verdict:
    return judge(
        (
            f"{name} asks for no passkey"
            for name, space in of.spaces.items()
            if not space.config.passkeys.required
        ),
        change="set `passkeys: required:` for the calls that matter",
        otherwise="every space asks for a signature over the exact call, by a passkey",
    )


def isolated_keys(of: Deployment) -> Verdict:
    if not of.configuration.tokens_in_file:
        return met("no token stands in the configuration")
    return judge(
        [f"{of.file} may be read by others"] if of.is_file_open() else [],
        change="chmod 600, or token_env and generated tokens, which are in files of their own",
        otherwise="only our user may read the file",
    )


def unboxed(of: Deployment) -> Iterator[str]:
    for name, server in of.local_servers():
        if not isinstance(server.box, BoxConfig):
            yield f"{name} runs with all that our user may"


def boxes(of: Deployment) -> Verdict:
    if not list(of.local_servers()):
        return none("no MCP server is started here")
    return judge(unboxed(of), change="`box: on`, and then what it needs", otherwise="every server has a box")


def untrusted_values(of: Deployment) -> Verdict:
    rules = [rule for rule in of.rules if rule.decision == "approve" and not rule.observe]
    if not rules:
        return none("no rule approves anything (name files of rules with --rules)")
    return judge(
        (f"the rule {rule.name} approves whoever said the values" for rule in rules if rule.ask is None),
        change="`ask: when_untrusted` in the rule",
        otherwise=f"all {len(rules)} rules that approve ask about values that nobody trusted said",
    )


def identities(of: Deployment) -> Verdict:
    def shared() -> Iterator[str]:
        for name, space in of.spaces.items():
            if space.config.anonymous is not None:
                yield f"{name} lets in who has no token"

    return judge(shared(), change="remove `anonymous`", otherwise="everybody has a token of their own")


def signed_steps(of: Deployment) -> Verdict:
    journal = of.configuration.gateway.journal
    faults = [] if journal.log else ["gateway.journal.log is off"]
    return judge(
        [*faults, *unjournaled(of)],
        change="`journal: {mode: on, log: true}`",
        otherwise="every message is in a hash-chained journal whose tree is signed",
    )


def unjournaled(of: Deployment) -> Iterator[str]:
    for name, space in of.spaces.items():
        if (space.journal or of.configuration.gateway.journal.mode) != "on":
            yield f"{name} has no journal"


def state(of: Deployment) -> Verdict:
    return judge(
        unjournaled(of), change="`journal: on`", otherwise="the state comes from a hash-chained journal"
    )


def rotation(of: Deployment) -> Verdict:
    return judge(
        of.old_tokens(),
        change="`moot member invite NAME` makes another one; or let people sign in with a provider",
        otherwise="no token is older than 90 days",
    )


def narrow_rights(of: Deployment) -> Verdict:
    return judge(
        of.free_callers(),
        change="name tools and arguments in the capability",
        otherwise="no agent may call every tool of a server",
    )


def on_behalf(of: Deployment) -> Verdict:
    remote = [(name, server) for name, server in of.servers() if server.url is not None]
    if not remote:
        return none("no remote MCP server is bridged")
    return judge(
        (
            f"{name} is called with one account for all"
            for name, server in remote
            if server.credentials == "server"
        ),
        change="`credentials: requester` (or approver)",
        otherwise="remote servers are called with the account of whoever asks or approves",
    )


def secrets(of: Deployment) -> Verdict:
    def literal() -> Iterator[str]:
        for name, server in of.servers():
            for key in [*server.env, *server.headers]:
                if any(
                    word in key.lower() for word in ("token", "key", "secret", "password", "authorization")
                ):
                    yield f"{key} of {name} stands in the configuration"

    if not list(of.servers()):
        return none("no MCP server is bridged")
    return judge(
        literal(), change="put it into `env_file`", otherwise="no secret of a server stands in the file"
    )


def delegation(of: Deployment) -> Verdict:
    return judge(
        (
            f"{name} hands on rights freely"
            for name, one in of.spaces.items()
            if one.config.delegation != "covered"
        ),
        change="remove `delegation: unrestricted`",
        otherwise="nobody hands on what they do not hold",
    )


def approval_time(of: Deployment) -> Verdict:
    return judge(
        (
            f"proposals in {name} stay open for {space.config.limits.proposal_seconds / 86_400:.0f} days"
            for name, space in of.spaces.items()
            if space.config.limits.proposal_seconds > _LONGEST_PROPOSAL_SECONDS
        ),
        change="`limits: {proposal_seconds: 86400}`",
        otherwise="proposals expire after a week at the latest, and never run then",
    )


def out_of_band(of: Deployment) -> Verdict:
    gateway = of.configuration.gateway
    has_admin = bool(gateway.admin_tokens or of.configuration.admin_token_files)
    has_admin |= any(rule.administrator for provider in gateway.oidc for rule in provider.people)
    return judge(
        [] if gateway.http.admin and has_admin else ["nobody can stop members but by a message in the space"],
        change="`admin_tokens:` and `http: {admin: true}`",
        otherwise="an administrator ends sessions and tokens over HTTP, beside the space",
    )

"""`moot serve --check`: what would run, what is worth a second look, and nothing written."""

from __future__ import annotations

from pathlib import Path

import pytest

from moot.config import check
from moot.errors import UsageError
from tests.config.files import NO_ENVIRONMENT, loaded, written


def test_it_says_what_would_run_and_writes_nothing(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        gateway: {port: 0, admin_tokens: {root: {}, second: {token: x}}, smtp: {host: mail, from: f}}
        spaces:
          lab:
            dialects: [mew, mcpx]
            journal: strict
            participants:
              alice: {capabilities: ["*"]}
              bob: {tokens: [a, b], profile: initial}
              tape: {tokens: [c], output_log: tape.jsonl}
        """,
    )
    assert check(path, environ=NO_ENVIRONMENT) == [
        "gateway: http://127.0.0.1:(any free port)",
        f"  data in {tmp_path / '.moot'}, journal on",
        f"  administrator root: token to be made in {tmp_path / '.moot/admin/root.token'}",
        "  administrator second: 1 token",
        "  mail through mail:587",
        "space lab: private, speaks mcpx, mew, journal strict",
        f"  alice: 1 capability, token to be made in {tmp_path / '.moot/tokens/alice.token'}",
        "  bob: 2 capabilities, 2 tokens",
        f"  tape: no capabilities, 1 token, written to {tmp_path / 'tape.jsonl'}",
    ]
    assert sorted(tmp_path.iterdir()) == [path]


def test_a_token_that_is_there_is_named_as_such_and_its_file_is_checked(tmp_path: Path) -> None:
    text = "spaces: {lab: {participants: {alice: [chat]}}}"
    loaded(tmp_path, text)
    path = tmp_path / "moot.yaml"
    file = tmp_path / ".moot/tokens/alice.token"
    assert f"  alice: 1 capability, token in {file}" in check(path, environ=NO_ENVIRONMENT)
    file.chmod(0o644)
    with pytest.raises(UsageError, match="others may read"):
        check(path, environ=NO_ENVIRONMENT)


def test_options_count_as_they_would_for_serve(tmp_path: Path) -> None:
    path = written(tmp_path, "space: {id: s}\nparticipants: {a: {tokens: [x], capabilities: [{kind: chat}]}}")
    lines = check(path, environ=NO_ENVIRONMENT, host="::1", port=9, data=tmp_path / "d")
    assert lines[:3] == [
        "gateway: http://[::1]:9",
        f"  data in {tmp_path / 'd'}, journal on",
        "space s: private, speaks mew, as the reference implementation",
    ]


def test_a_mistake_is_raised_as_serve_would_raise_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"spaces.lab.x: unknown key"):
        check(written(tmp_path, "spaces: {lab: {x: 1}}"), environ=NO_ENVIRONMENT)


ALICE = "participants: {a: {tokens: [t], profile: full}}"


@pytest.mark.parametrize(
    ("text", "note"),
    [
        (
            "spaces: {lab: {participants: {a: {tokens: [t]}}}}",
            "space lab: a has no capability and can only listen",
        ),
        (
            "spaces: {lab: {participants: {a: {tokens: [t], capabilities: [chat, 'system/*']}}}}",
            "space lab: a: the capability 'system/*' does nothing: only the gateway says that",
        ),
        (
            "spaces: {lab: {access: public, anonymous: [chat], " + ALICE + "}}",
            "space lab: public: whoever reaches the gateway comes in as a guest",
        ),
        ("spaces: {lab: {}}", "space lab: has no participants"),
        (
            "spaces: {lab: {delegation: unrestricted, " + ALICE + "}}",
            "space lab: members may hand on rights that they do not hold (delegation: unrestricted)",
        ),
        (
            "{spaces: {lab: {" + ALICE + ", quorum: [{approvals_needed: 3, exempt: [a]}]}}}",
            "space lab: quorum[0]: 3 approvals are needed for every call; since 0.3 nobody but a makes it"
            " without them, whatever their capabilities",
        ),
        (
            "{spaces: {lab: {" + ALICE + ", passkeys: {required: [{tool: deploy, exempt: [a, bot]}]}}}}",
            "space lab: passkeys.required[0].exempt: there is no participant bot",
        ),
        (
            "{gateway: {allow_query_token: true}, spaces: {lab: {" + ALICE + "}}}",
            "gateway.allow_query_token: tokens in URLs end up in logs and histories",
        ),
        (
            "{gateway: {admin_tokens: {r: {token: t}}}, spaces: {lab: {" + ALICE + "}}}",
            "gateway.admin_tokens.r: a participant has the same token and so the same powers",
        ),
    ],
)
def test_what_may_not_be_meant_is_noted(tmp_path: Path, text: str, note: str) -> None:
    assert loaded(tmp_path, text).notes == (note,)
    assert check(tmp_path / "moot.yaml", environ=NO_ENVIRONMENT)[-1] == f"note: {note}"


@pytest.mark.parametrize("host", ["0.0.0.0", "'::'", "192.0.2.7"])  # noqa: S104  # read, not bound
def test_a_gateway_that_others_reach_without_tls_gets_a_loud_warning(tmp_path: Path, host: str) -> None:
    settings = "host: " + host + ", allowed_hosts: [moot.example, localhost, 192.0.2.7]"
    settings += ", public_url: 'http://moot.example'"
    shown = host.strip("'")
    exposed = f"WARNING: gateway.host: {shown} is reached from other machines, and there is no TLS: tokens"
    read = " and all messages can be read and changed on the way."
    (note,) = loaded(tmp_path, "{gateway: {" + settings + "}, spaces: {lab: {" + ALICE + "}}}").notes
    assert note.startswith(exposed + read)
    admin = settings + ", admin_tokens: {root: {token: r}}"
    (note,) = loaded(tmp_path, "{gateway: {" + admin + "}, spaces: {lab: {" + ALICE + "}}}").notes
    assert note.startswith(exposed + ", those of administrators (root) too," + read)
    public = "spaces: {lab: {access: public, anonymous: [chat], " + ALICE + "}}"
    notes = loaded(tmp_path, "{gateway: {" + settings + "}, " + public + "}").notes
    assert f"WARNING: space lab: whoever reaches {shown} comes in without a token" in notes


@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        ("allowed_hosts: [moot.example]", "localhost"),
        ("host: 0.0.0.0, allowed_hosts: ['127.0.0.1:9000']", "localhost"),
        ("host: '::1', allowed_hosts: [127.0.0.1]", "localhost"),
        ("host: 192.0.2.7, allowed_hosts: [localhost]", "192.0.2.7"),
        ("allowed_hosts: [moot.example, Localhost]", None),
        ("allowed_hosts: ['localhost:8080']", None),
        ("host: '::1', allowed_hosts: [localhost]", None),
        ("port: 0, allowed_hosts: [127.0.0.1]", None),
        ("host: 192.0.2.7, allowed_hosts: [192.0.2.7]", None),
    ],
)
def test_hosts_without_this_machine_are_noted(tmp_path: Path, settings: str, missing: str | None) -> None:
    text = "{gateway: {" + settings + "}, spaces: {lab: {" + ALICE + "}}}"
    found = [note for note in loaded(tmp_path, text).notes if "does not name this machine" in note]
    assert [note.rpartition("; add ")[2] for note in found] == ([] if missing is None else [missing])
    lines = check(tmp_path / "moot.yaml", environ=NO_ENVIRONMENT)
    assert [line for line in lines if "does not name this machine" in line] == [f"note: {n}" for n in found]


def test_a_gateway_that_names_no_hosts_is_told_who_is_answered(tmp_path: Path) -> None:
    text = "{gateway: {host: 0.0.0.0}, spaces: {lab: {" + ALICE + "}}}"
    assert loaded(tmp_path, text).notes[1] == (
        "gateway.host: listens on 0.0.0.0, but only requests that name this machine itself are answered;"
        " list other names under allowed_hosts"
    )
    cluster = text.replace("{host:", "{cluster: {servers: ['nats://n'], name: x}, host:")
    assert (
        loaded(tmp_path, cluster)
        .notes[1]
        .endswith(", or where each gateway is reached under cluster.addresses")
    )
    named = cluster.replace("name: x", "addresses: ['http://10.0.0.1:8080']")
    assert len(loaded(tmp_path, named).notes) == 1


def test_a_gateway_on_every_address_is_told_what_invited_people_are_told(tmp_path: Path) -> None:
    named = "host: 0.0.0.0, allowed_hosts: [moot.example, localhost]"
    text = "{gateway: {" + named + "}, spaces: {lab: {" + ALICE + "}}}"
    note = "gateway.public_url: is not set, so people whom members invite are told"
    assert [each.startswith(note) for each in loaded(tmp_path, text).notes] == [False, True]
    told = text.replace("{lab: {", "{lab: {connection_url: 'wss://moot.example/{id}', ")
    assert len(loaded(tmp_path, told).notes) == 1


@pytest.mark.parametrize("mode", [0o640, 0o604])
def test_tokens_in_a_file_that_others_may_read_are_noted(tmp_path: Path, mode: int) -> None:
    path = written(tmp_path, "spaces: {lab: {participants: {a: {tokens: [t], profile: full}}}}")
    path.chmod(mode)
    assert check(path, environ=NO_ENVIRONMENT)[-1] == (
        "note: spaces.lab.participants.a.tokens[0]: a token stands in a file that others may read;"
        " run chmod 600 on moot.yaml"
    )


def test_a_file_that_everyone_reads_is_fine_while_no_token_stands_in_it(tmp_path: Path) -> None:
    path = written(tmp_path, "spaces: {lab: {participants: {a: {token_env: T, profile: full}}}}")
    path.chmod(0o644)
    assert not [line for line in check(path, environ={"T": "t"}) if line.startswith("note")]


def test_budgets_are_said_in_words_and_all_mistakes_in_them_at_once(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        spaces:
          lab:
            budgets:
              mail:
                {who: [agnt, "bot-*"], each: true, tool: [send, reply], to: mailer, at_most: 50, per: hour}
              euros: {arguments: {currency: EUR}, sum: arguments.lines.*.amount, ask_at: 0.5}
            participants: {agent: {}}
        """,
    )
    said = check(path, environ=NO_ENVIRONMENT)
    assert "  budget mail: calls of send, reply at mailer by each agnt, bot-*, in an hour: at most 50" in said
    assert (
        '  budget euros: the sum of arguments.lines.*.amount in calls with {"currency": "EUR"}, in a day: '
        "a person approves beyond 0.5"
    ) in said
    assert any("budgets.mail.who: there is no participant agnt" in line for line in said)
    path.write_text(path.read_text("utf-8").replace("0.5", "-1").replace("per: hour", "per: 1h"), "utf-8")
    with pytest.raises(
        UsageError, match=r"(?s)budgets.mail.per: must be one of hour.*budgets.euros.ask_at: must"
    ):
        check(path, environ=NO_ENVIRONMENT)

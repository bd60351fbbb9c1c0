"""A moot.yaml: its spaces, read strictly."""

from __future__ import annotations

from pathlib import Path

import pytest

from moot.config import hash_token, load
from moot.config.configuration import McpServerConfig, MemberConfig
from moot.errors import UsageError
from moot.protocol.patterns import read_capabilities
from tests.config.files import NO_ENVIRONMENT, lab, loaded, written


def test_the_shape_that_the_manual_shows(tmp_path: Path) -> None:
    configuration = loaded(
        tmp_path,
        """
        gateway:
          {host: 127.0.0.1, port: 8080, data: .moot, admin_tokens: {root: {token_env: MOOT_ADMIN_TOKEN}}}
        spaces:
          lab:
            dialects: [mew, mcpx, m3p]
            participants:
              alice: {token_env: ALICE_TOKEN, capabilities: [{kind: "*"}]}
              agent: {tokens: [dev-only], capabilities: [{kind: mcp/proposal}, "chat"]}
            defaults: {capabilities: []}
            limits: {messages_per_second: 2000, bytes_per_second: 8388608}
        """,
        MOOT_ADMIN_TOKEN="root-token",
        ALICE_TOKEN="alice-token",
    )
    space = configuration.spaces["lab"]
    assert space.config.name == "lab"
    assert space.config.dialects == {"mew", "mcpx", "m3p"}
    assert not space.config.reference_compat
    assert {hash: grant.participant for hash, grant in space.tokens.items()} == {
        hash_token("alice-token"): "alice",
        hash_token("dev-only"): "agent",
    }
    assert space.config.participants["alice"].credentials == (hash_token("alice-token"),)
    assert configuration.gateway.admin_tokens == {"root": hash_token("root-token")}
    assert configuration.notes == ()
    assert configuration.default_space == "lab"


def test_every_key_of_a_space_is_read(tmp_path: Path) -> None:
    space = lab(
        tmp_path,
        """
        title: The lab
        description: Where things are tried
        default_participant: alice
        access: restricted
        admit: [guest-1]
        journal: off
        separation_of_duties: true
        defaults: {profile: initial}
        participants:
          alice:
            exclusive: true
            capabilities: [chat]
            tokens: [a]
            type: local
            command: node
            args: ["${PORT}", "${SPACE}", "${TOKEN}", 7]
            env: {KEY: "${OPENAI_API_KEY}", COUNT: 3, FAST: true}
            cwd: /srv
            auto_start: true
            auto_connect: false
            default_to: bob
            mcp_server: {command: npx, args: [x], env: {A: b}, cwd: /}
          bob: {tokens: [b], output_log: logs/bob.jsonl, mcp_server: {url: "http://x"}, default_to: [alice]}
          carol: ["chat"]
        """,
    )
    assert (space.title, space.description) == ("The lab", "Where things are tried")
    assert (space.default_participant, space.config.access, space.journal) == ("alice", "restricted", "off")
    assert space.config.admit == {"guest-1"}
    assert space.config.separation_of_duties
    assert space.config.participants["alice"].exclusive
    assert space.config.participants["bob"].capabilities == read_capabilities(
        [{"kind": "mcp/proposal"}, {"kind": "chat"}]
    )
    assert space.members["alice"] == MemberConfig(
        type="local",
        command="node",
        args=("${PORT}", "${SPACE}", "${TOKEN}", "7"),
        env={"KEY": "${OPENAI_API_KEY}", "COUNT": "3", "FAST": "true"},
        cwd="/srv",
        auto_start=True,
        auto_connect=False,
        default_to=("bob",),
        mcp_server=McpServerConfig(command="npx", args=("x",), env={"A": "b"}, cwd="/"),
    )
    assert space.members["bob"].mcp_server == McpServerConfig(url="http://x")
    assert space.output_logs == {"bob": tmp_path / "logs/bob.jsonl"}
    assert set(space.members) == {"alice", "bob"}


def test_defaults_are_for_those_who_say_nothing(tmp_path: Path) -> None:
    space = lab(
        tmp_path,
        """
        defaults: {capabilities: [chat]}
        participants: {silent: {}, none: {capabilities: []}, own: ["mcp/*"]}
        """,
    )
    rights = {name: settings.capabilities for name, settings in space.config.participants.items()}
    assert rights == {
        "silent": read_capabilities(["chat"]),
        "none": (),
        "own": read_capabilities(["mcp/*"]),
    }


def test_strings_are_mcpx_in_a_space_that_speaks_no_mew(tmp_path: Path) -> None:
    """D-52, D-90: there `mcp/*` is no right to withdraw or reject, unless the file says another notation."""
    people = """{
        a: ["mcp/*"],
        b: {capabilities: ["mcp/*"], notation: mew},
        c: {capabilities: ["*"], tokens: [{token: t, capabilities: ["mcp/*"]}]},
        d: [{kind: "mcp/*"}]}"""
    rules = f'participants: {people}, access: public, anonymous: ["mcp/*"], invite_baseline: ["mcp/*"]'
    for dialects, three in (("[mcpx]", True), ("[m3p, mcpx]", True), ("[mew, mcpx]", False)):
        space = loaded(tmp_path, f"{{spaces: {{lab: {{{rules}, dialects: {dialects}}}}}}}").spaces["lab"]
        config = space.config
        (token,) = [each.capabilities for each in space.tokens.values() if each.capabilities]
        places = [config.participants["a"].capabilities, config.anonymous, config.invite_baseline, token]
        for (right,) in [each for each in places if each is not None]:
            assert right.matches("mcp/proposal", {"method": "x"})
            assert right.matches("mcp/withdraw", {}) is not three
        for name in ("b", "d"):
            assert config.participants[name].capabilities[0].matches("mcp/withdraw", {})


def test_a_notation_can_be_said_outright(tmp_path: Path) -> None:
    """D-90: `mcp/*` is three kinds in MCPx and five in MEW."""
    space = lab(
        tmp_path,
        """
        participants:
          mew: {capabilities: ["mcp/*"]}
          mcpx: {capabilities: ["mcp/*"], notation: mcpx}
        """,
    )
    passes = {
        name: settings.capabilities[0].matches("mcp/withdraw", {})
        for name, settings in space.config.participants.items()
    }
    assert passes == {"mew": True, "mcpx": False}


@pytest.mark.parametrize(
    ("space", "fault"),
    [
        ("particpants: {}", "spaces.lab.particpants: unknown key; did you mean participants?"),
        (
            "participants: {a: {capabilites: []}}",
            "spaces.lab.participants.a.capabilites: unknown key; did you mean",
        ),
        (
            "participants: {a: {capabilities: [chat, {kin: x}]}}",
            "spaces.lab.participants.a.capabilities[1]: ",
        ),
        ("participants: {a: {capabilities: null}}", "spaces.lab.participants.a.capabilities: must be a list"),
        ("participants: {a: null}", "spaces.lab.participants.a: must be a mapping"),
        ("participants: {'a b': {}}", "spaces.lab.participants.a b: a participant id has"),
        ("participants: {gateway: {}}", "spaces.lab.participants.gateway: 'gateway' is reserved"),
        ("participants: {on: {}}", "spaces.lab.participants: the key True is not text; put it in quotes"),
        ("participants: {a: {exclusive: 1}}", "spaces.lab.participants.a.exclusive: must be true or false"),
        ("participants: {a: {profile: reed-only}}", "a.profile: no such profile; did you mean read-only?"),
        ("participants: {a: {profile: 3}}", "spaces.lab.participants.a.profile: must be the name"),
        ("participants: {a: {notation: x, capabilities: []}}", "a.notation: must be one of m3p, mcpx, mew"),
        ("participants: {a: {args: x}}", "spaces.lab.participants.a.args: must be a list"),
        ("participants: {a: {args: [[x]]}}", "spaces.lab.participants.a.args[0]: must be text or a number"),
        ("participants: {a: {env: {K: [x]}}}", "spaces.lab.participants.a.env.K: must be text or a number"),
        (
            "participants: {a: {command: 1}}",
            "participants.a.command: must be text, not a whole number",
        ),
        (
            "participants: {a: {auto_start: 1}}",
            "a.auto_start: must be true or false, not a whole number",
        ),
        (
            "participants: {a: {mcp_server: {}}}",
            "spaces.lab.participants.a.mcp_server: has to hold command or url",
        ),
        (
            "participants: {a: {mcp_server: {cmd: x}}}",
            "spaces.lab.participants.a.mcp_server.cmd: unknown key",
        ),
        ("participants: {a: {default_to: [1]}}", "spaces.lab.participants.a.default_to[0]: must be text"),
        ("participants: {a: {output_log: ''}}", "spaces.lab.participants.a.output_log: expected a path"),
        ("participants: []", "spaces.lab.participants: must be a mapping"),
        ("defaults: {tokens: []}", "spaces.lab.defaults.tokens: unknown key"),
        ("access: open", "spaces.lab.access: must be one of private, public, restricted"),
        ("access: public", "spaces.lab.access: a public space says under anonymous"),
        ("anonymous: [chat]", "spaces.lab.anonymous: guests come in only where access is public"),
        ("admit: [x]", "spaces.lab.admit: has a meaning only where access is restricted"),
        ("{access: restricted, admit: ['a b']}", "spaces.lab.admit[0]: a participant id"),
        ("journal: loud", "spaces.lab.journal: must be one of off, on, strict"),
        ("default_participant: x", "spaces.lab.default_participant: must be one of "),
        ("title: 3", "spaces.lab.title: must be text"),
        ("limits: {open_doors: 1}", "spaces.lab.limits.open_doors: unknown limit"),
        ("limits: {messages_per_second: .nan}", "spaces.lab.limits.messages_per_second: must be a number"),
    ],
)
def test_a_mistake_names_its_path(tmp_path: Path, space: str, fault: str) -> None:
    with pytest.raises(UsageError) as raised:
        lab(tmp_path, space)
    assert fault in str(raised.value)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "is empty"),
        ("[]", "the file: must be a mapping"),
        ("gateway: {}", "spaces: is missing"),
        ("spaces: {}", "spaces: is missing"),
        ("spaces: {lab: {}}\nspace: {}", "space: unknown key; did you mean spaces?"),
        ("gateway: {}\nparticipants: {}", "participants: unknown key"),
        ("spaces: {'a/b': {}}", "spaces.a/b: a space's name has"),
        ("spaces: {..: {}}", "spaces...: a space's name has"),
        ("spaces: {lab: {}}\nprofiles: {full: [chat]}", "profiles.full: is built in"),
        ("spaces: {lab: {}}\nprofiles: {mine: [{}]}", "profiles.mine[0]: "),
        ("spaces: {lab: {}}\nprofiles: {mine: {caps: []}}", "profiles.mine.caps: unknown key"),
        ("spaces: {lab: {}, lab: {}}", "a key stands twice"),
        ("spaces: {", "not valid YAML"),
        ("spaces: !!python/object:os.system {}", "not valid YAML"),
        ("spaces: 2024-13-45", "not valid YAML"),
        ("[" * 5000, "not valid YAML"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(UsageError) as raised:
        loaded(tmp_path, text)
    assert fault in str(raised.value)


def test_all_mistakes_of_a_file_are_told_at_once_and_nothing_is_made_after_one(tmp_path: Path) -> None:
    """Decision 0335."""
    text = """
        gateway: {port: 70000, hots: x, journal: {mode: loud, retain_days: -1}}
        spaces:
          lab: {qorum: [], enforce_pause: 3, limits: {open_doors: 1, max_open_requests: -1},
                participants: {alice: {tokns: [a]}, bob: {capabilities: 3}, carl: [chat]}}
          two words: {}
          other: {participants: {dora: [chat]}}
    """
    with pytest.raises(UsageError) as raised:
        loaded(tmp_path, text)
    told = [line.partition(f"{tmp_path / 'moot.yaml'}: ")[2] for line in str(raised.value).splitlines()]
    assert [line.partition(": ")[0] for line in told] == [
        "gateway.hots",
        "gateway.port",
        "gateway.journal.mode",
        "gateway.journal.retain_days",
        "spaces.lab.qorum",
        "spaces.lab.enforce_pause",
        "spaces.lab.limits.open_doors",
        "spaces.lab.limits.max_open_requests",
        "spaces.lab.participants.alice.tokns",
        "spaces.lab.participants.bob.capabilities",
        "spaces.two words",
    ]
    assert list(tmp_path.rglob("*.token")) == []


@pytest.mark.parametrize(
    "text",
    [
        "spaces: {lab: {participants: {alice: [chat]}, enforce_pause: 3}}",
        "spaces: {lab: {participants: {alice: [chat], bob: [chat], carl: {capabilities: 3}}}}",
        "spaces: {lab: {participants: {alice: [chat]}, mcp_servers: {notes: {}}}}",
        "spaces: {lab: {participants: {alice: [chat]}, access: all}}",
        "spaces: {lab: {participants: {alice: [chat]}}, other: {qorum: []}}",
        "{spaces: {lab: {participants: {alice: [chat]}}}, gateway: {mcp: {spaces: 3}}}",
        "{spaces: {lab: {participants: {alice: [chat]}}}, gateway: {admin_tokens: {root: 3}}}",
    ],
)
def test_wherever_the_mistake_is_no_token_is_made(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError):
        loaded(tmp_path, text)
    assert list(tmp_path.rglob("*.token")) == []


def test_where_the_data_folder_is_not_known_no_tokens_of_another_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = tmp_path / ".moot" / "tokens"
    tokens.mkdir(parents=True)
    (tokens / "alice.token").touch(0o644)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as raised:
        loaded(
            tmp_path,
            "{gateway: {data: elsewhere, port: 70000}, spaces: {lab: {participants: {alice: [chat]}}}}",
        )
    assert str(raised.value).count("\n") == 0
    assert "gateway.port" in str(raised.value)


def test_a_mistake_in_profiles_or_servers_hides_no_other(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as raised:
        loaded(
            tmp_path,
            "{gateway: {port: 70000}, profiles: {x: 3}, spaces: {lab: {participants: {a: {profile: x}}}}}",
        )
    assert [each.split(": ")[1] for each in str(raised.value).splitlines()] == ["gateway.port", "profiles.x"]
    with pytest.raises(UsageError) as raised:
        lab(tmp_path, "{participants: {a: {x: 1, y: 1}}, mcp_servers: {b: {}, c: {args: 1, comand: x}}}")
    assert [each.split(": ")[1].removeprefix("spaces.lab.") for each in str(raised.value).splitlines()] == [
        "participants.a.x",
        "participants.a.y",
        "mcp_servers.b",
        "mcp_servers.c.comand",
    ]


def test_of_very_many_mistakes_twenty_are_told(tmp_path: Path) -> None:
    keys = ", ".join(f"key{number}: 1" for number in range(30))
    with pytest.raises(UsageError) as raised:
        lab(tmp_path, f"{{{keys}}}")
    *told, last = str(raised.value).splitlines()
    assert (len(told), last.partition(": ")[2]) == (20, "and 10 more mistakes")


def test_a_file_that_is_not_there_or_not_text_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no such file; `moot init`"):
        load(tmp_path / "moot.yaml", environ=NO_ENVIRONMENT)
    (tmp_path / ".mew").mkdir()
    (tmp_path / ".mew" / "nowhere.yaml").write_text("space: {id: x}")
    with pytest.raises(UsageError, match=r"there is no such file; there is .*\.mew/nowhere\.yaml"):
        load(tmp_path / "nowhere.yaml", environ=NO_ENVIRONMENT)
    path = written(tmp_path, "")
    path.write_bytes(b"\xff")
    with pytest.raises(UsageError, match="is not UTF-8 text"):
        load(path, environ=NO_ENVIRONMENT)


def test_yaml_merge_keys_work_and_may_repeat_what_they_replace(tmp_path: Path) -> None:
    space = lab(
        tmp_path,
        """
        participants:
          a: &base {tokens: [x], exclusive: true}
          b: {<<: *base, tokens: [y]}
        """,
    )
    assert space.config.participants["b"].exclusive
    assert space.tokens[hash_token("y")].participant == "b"


def test_a_client_without_a_space_goes_to_the_only_one_or_the_default(tmp_path: Path) -> None:
    """D-22."""
    assert loaded(tmp_path, "spaces: {a: {}}").default_space == "a"
    assert loaded(tmp_path, "spaces: {a: {}, default: {}}").default_space == "default"
    assert loaded(tmp_path, "spaces: {a: {}, b: {}}").default_space is None


@pytest.mark.parametrize("access", ["private", "restricted", "public"])
def test_a_space_file_says_who_may_join(tmp_path: Path, access: str) -> None:
    """MEW 5.1."""
    more = {"restricted": "admit: [known]", "public": "anonymous: [chat]"}.get(access, "")
    space = lab(tmp_path, f"access: {access}\nparticipants: {{alice: {{}}}}\n{more}")
    assert (space.config.access, "known" in space.config.admit) == (access, access == "restricted")
    assert (space.config.anonymous is not None) == (access == "public")

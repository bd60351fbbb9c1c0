"""Where tokens come from, how their files are kept, and that no secret gets out."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from moot.config import Secret, check, hash_token, load
from moot.config.configuration import McpServerConfig
from moot.errors import UsageError
from tests.config.files import NO_ENVIRONMENT, lab, loaded, written
from tests.waiting import HANG_SECONDS

NO_TOKENS = "spaces: {lab: {participants: {alice: [chat], bob: [chat]}}}"


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_token_is_kept_as_its_sha256() -> None:
    assert hash_token("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_missing_tokens_are_made_for_their_owner_alone(tmp_path: Path) -> None:
    space = loaded(tmp_path, NO_TOKENS).spaces["lab"]
    folder = tmp_path / ".moot" / "tokens"
    assert space.token_files == {"alice": folder / "alice.token", "bob": folder / "bob.token"}
    assert mode_of(tmp_path / ".moot") == mode_of(folder) == 0o700
    for name in ("alice", "bob"):
        text = (folder / f"{name}.token").read_text("ascii")
        assert mode_of(folder / f"{name}.token") == 0o600
        assert len(text.strip()) == 43
        assert space.tokens[hash_token(text.strip())].participant == name
        assert space.config.participants[name].credentials == (hash_token(text.strip()),)
    assert (folder / ".gitignore").read_text("utf-8") == "*\n"


def test_tokens_of_many_are_synced_together_and_not_one_after_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """10,000 of them took half a minute."""
    both, sync = threading.Barrier(2), os.fsync

    def sync_together(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").rpartition("/")[2].startswith((".alice", ".bob")):
            both.wait(HANG_SECONDS)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", sync_together)
    assert len(loaded(tmp_path, NO_TOKENS).spaces["lab"].tokens) == 2


def test_a_token_that_is_there_is_used_again(tmp_path: Path) -> None:
    first = loaded(tmp_path, NO_TOKENS).spaces["lab"].tokens
    assert loaded(tmp_path, NO_TOKENS).spaces["lab"].tokens == first


def test_with_several_spaces_each_has_a_folder(tmp_path: Path) -> None:
    data = tmp_path / "deep" / "data"
    path = written(tmp_path, "spaces: {a: {participants: {x: [chat]}}, b: {participants: {x: [chat]}}}")
    spaces = load(path, environ=NO_ENVIRONMENT, data=data).spaces
    assert spaces["a"].token_files == {"x": data / "tokens/a/x.token"}
    assert set(spaces["a"].tokens).isdisjoint(spaces["b"].tokens)
    assert mode_of(data / "tokens") == mode_of(data / "tokens/a") == 0o700


def test_an_administrator_without_a_token_gets_one(tmp_path: Path) -> None:
    configuration = loaded(tmp_path, f"gateway: {{admin_tokens: {{root: {{}}}}}}\n{NO_TOKENS}")
    file = tmp_path / ".moot/admin/root.token"
    assert mode_of(file) == 0o600
    assert configuration.gateway.admin_tokens == {"root": hash_token(file.read_text("ascii").strip())}
    assert configuration.admin_token_files == {"root": file}


def test_a_listed_token_needs_no_file(tmp_path: Path) -> None:
    space = lab(tmp_path, "participants: {a: {tokens: [x, y], token_env: Z}}", Z=" z\n")
    assert space.config.participants["a"].credentials == (hash_token("z"), hash_token("x"), hash_token("y"))
    assert space.token_files == {}
    assert not (tmp_path / ".moot").exists()


def test_an_empty_list_of_tokens_keeps_everyone_out_and_is_noted(tmp_path: Path) -> None:
    configuration = loaded(tmp_path, "spaces: {lab: {participants: {a: {tokens: [], capabilities: [chat]}}}}")
    assert configuration.spaces["lab"].tokens == {}
    assert configuration.notes == ("spaces.lab.participants.a.tokens: is empty, so nobody can join as a",)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_token_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    loaded(tmp_path, NO_TOKENS)
    (tmp_path / ".moot/tokens/bob.token").chmod(mode)
    with pytest.raises(
        UsageError, match=r"spaces.lab.participants.bob: others may read .*bob.token.*chmod 600"
    ):
        loaded(tmp_path, NO_TOKENS)


def test_a_folder_that_others_may_write_is_refused(tmp_path: Path) -> None:
    loaded(tmp_path, NO_TOKENS)
    (tmp_path / ".moot/tokens").chmod(0o770)
    with pytest.raises(
        UsageError,
        match=r"alice: the folder .* can be written by its group.*chmod go-w",
    ):
        loaded(tmp_path, NO_TOKENS)


def test_a_link_in_place_of_a_token_is_refused_even_if_it_leads_nowhere(tmp_path: Path) -> None:
    loaded(tmp_path, NO_TOKENS)
    file = tmp_path / ".moot/tokens/alice.token"
    file.rename(tmp_path / "stolen")
    file.symlink_to(tmp_path / "stolen")
    for _ in range(2):
        with pytest.raises(UsageError, match=r"alice: the token file .* is a symbolic link"):
            loaded(tmp_path, NO_TOKENS)
        (tmp_path / "stolen").unlink(missing_ok=True)
    assert not (tmp_path / "stolen").exists()


def test_what_is_no_token_file_is_refused(tmp_path: Path) -> None:
    loaded(tmp_path, NO_TOKENS)
    file = tmp_path / ".moot/tokens/alice.token"
    for content, fault in (
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"\xff", "visible ASCII"),
        (b"a b", "ASCII"),
    ):
        file.write_bytes(content)
        with pytest.raises(UsageError, match=fault):
            loaded(tmp_path, NO_TOKENS)
    file.unlink()
    file.mkdir()
    with pytest.raises(UsageError, match=r"alice: the token file .*alice.token"):
        loaded(tmp_path, NO_TOKENS)
    file.rmdir()
    os.mkfifo(file, 0o600)
    with pytest.raises(UsageError, match="is not a file"):
        loaded(tmp_path, NO_TOKENS)


def test_a_token_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded(tmp_path, NO_TOKENS)
    file = tmp_path / ".moot/tokens/alice.token"
    if os.geteuid() == 0:
        os.chown(file, 1, -1)
        loaded(tmp_path, NO_TOKENS)  # the superuser reads for others
    monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid + 1)
    with pytest.raises(UsageError, match="belongs to another user"):
        loaded(tmp_path, NO_TOKENS)


def test_a_data_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        UsageError, match=r"participants.alice: the token file .*: (Not a directory|File exists)"
    ):
        loaded(tmp_path, "gateway: {data: file}\n" + NO_TOKENS)


@pytest.mark.parametrize(
    ("participant", "fault"),
    [
        (
            "token_env: ALICE",
            "spaces.lab.participants.a.token_env: the environment variable ALICE is not set",
        ),
        (
            "token_env: EMPTY",
            "spaces.lab.participants.a.token_env: the environment variable EMPTY is not set",
        ),
        ("token_env: 3", "spaces.lab.participants.a.token_env: must be the name"),
        ("tokens: x", "spaces.lab.participants.a.tokens: must be a list of tokens"),
        ("tokens: [1234]", "spaces.lab.participants.a.tokens[0]: must be a token: text, in quotes"),
        ("tokens: ['']", "spaces.lab.participants.a.tokens[0]: a token has 1 to 1024 visible"),
        ("tokens: [x, {}]", "spaces.lab.participants.a.tokens[1]: has to hold token or token_env"),
        ("tokens: [{token: x, token_env: Y}]", "spaces.lab.participants.a.tokens[0]: has to hold"),
        ("tokens: [{tok: x}]", "spaces.lab.participants.a.tokens[0].tok: unknown key; did you mean token?"),
        ("tokens: [{token: x, profile: y}]", "spaces.lab.participants.a.tokens[0].profile: no such profile"),
        ("tokens: [{token: x, capabilities: [{}]}]", "spaces.lab.participants.a.tokens[0].capabilities[0]: "),
        ("tokens: [x, {token: x, profile: full}]", "tokens[1]: the same token as one of this participant"),
    ],
)
def test_a_mistake_names_its_path(tmp_path: Path, participant: str, fault: str) -> None:
    with pytest.raises(UsageError) as raised:
        lab(tmp_path, f"participants: {{a: {{{participant}}}}}", EMPTY="  ")
    assert fault in str(raised.value)


# No secret gets out. Each of these holds the word "hush" where a secret stands.

HUSH = "hush-Aa0_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"


@pytest.mark.parametrize(
    "text",
    [
        f"participants: {{a: {{tokens: [{HUSH}]}}, b: {{tokens: [{HUSH}]}}}}",
        f"participants: {{a: {{token_env: S}}, b: {{tokens: [{HUSH}]}}}}",
        f"participants: {{a: {{token_env: {HUSH}}}}}",
        f"participants: {{a: {{tokens: {HUSH}}}}}",
        f"participants: {{a: {{tokens: ['{HUSH} b']}}}}",
        f"participants: {{a: {{tokens: [!{HUSH} x]}}}}",
        f"participants: {{a: {{tokens: [*{HUSH}]}}}}",
        f"participants: {{a: {{tokens: [%{HUSH}]}}}}",
        f"participants: {{a: {{tokens: ['{HUSH}]}}}}",
        f"participants: {{a: {{tokens: [{{token: {HUSH}, profil: x}}]}}}}",
        f"participants: {{a: {{tokens: [{HUSH}], exclusive: 3}}}}",
        f"participants: {{a: {{env: {{KEY: [{HUSH}]}}}}}}",
        f"participants: {{a: {{args: [[{HUSH}]]}}}}",
        f"participants: {{a: {HUSH}}}",
    ],
)
def test_no_error_shows_a_secret(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError) as raised:
        lab(tmp_path, text, S=HUSH)
    assert "hush" not in repr(raised.value)
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__


def test_two_participants_with_one_token_are_told_apart_without_showing_it(tmp_path: Path) -> None:
    text = f"participants: {{alice: {{tokens: [{HUSH}]}}, bob: {{token_env: S}}}}"
    with pytest.raises(UsageError, match=r"bob.token_env: the same token as one of alice"):
        lab(tmp_path, text, S=HUSH)


def test_one_token_may_open_two_spaces(tmp_path: Path) -> None:
    spaces = loaded(
        tmp_path, "spaces: {a: {participants: {x: {tokens: [t]}}}, b: {participants: {y: {tokens: [t]}}}}"
    ).spaces
    assert [space.tokens[hash_token("t")].participant for space in spaces.values()] == ["x", "y"]


def test_nothing_that_is_loaded_shows_a_secret(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        f"""
        gateway:
          admin_tokens: {{root: {{token: {HUSH}-root}}}}
          smtp: {{host: h, from: f, user: u, password_env: PW}}
        spaces:
          lab:
            participants:
              a:
                tokens: [{HUSH}, {{token_env: S, profile: read-only}}]
                args: [--key, {HUSH}]
                env: {{KEY: {HUSH}}}
                mcp_server: {{command: x, args: [{HUSH}], env: {{KEY: {HUSH}}}}}
              b: {{}}
        """,
    )
    path.chmod(0o644)
    environ = {"PW": HUSH, "S": f"{HUSH}-2"}
    configuration = load(path, environ=environ)
    made = (tmp_path / ".moot/tokens/b.token").read_text("ascii").strip()
    shown = "\n".join([repr(configuration), str(configuration), *check(path, environ=environ)])
    assert "hush" not in shown
    assert made not in shown
    member = configuration.spaces["lab"].members["a"]
    assert repr(member) == "MemberConfig(command=None, args=2, env=['KEY'])"
    assert (
        repr(McpServerConfig(url="u", env={"A": HUSH})) == "McpServerConfig(command=None, args=0, env=['A'])"
    )


def test_a_secret_is_shown_to_nobody_who_does_not_ask() -> None:
    secret = Secret(HUSH)
    assert "hush" not in f"{secret} {secret!r} {[secret]}"
    assert secret.reveal() == HUSH
    assert secret == Secret(HUSH)
    assert len({secret, Secret(HUSH), Secret("x")}) == 2


def test_placeholders_are_not_filled_in(tmp_path: Path) -> None:
    """A token that reads ${TOKEN} is those eight characters."""
    space = lab(tmp_path, "participants: {a: {tokens: ['${TOKEN}'], args: ['${TOKEN}']}}", TOKEN="x")
    assert set(space.tokens) == {hash_token("${TOKEN}")}
    assert space.members["a"].args == ("${TOKEN}",)


def test_tokens_stay_as_they_are_when_spaces_are_added_and_removed(tmp_path: Path) -> None:
    """A new token is void at once for whoever holds the old one."""
    lab, other = "lab: {participants: {you: ['*']}}", "other: {participants: {you: ['*']}}"

    def tokens(*spaces: str) -> dict[str, tuple[str, ...]]:
        found = loaded(tmp_path, f"spaces: {{{', '.join(spaces)}}}").spaces
        return {name: space.config.participants["you"].credentials for name, space in found.items()}

    alone = tokens(lab)
    both = tokens(other, lab)
    assert both["lab"] == alone["lab"] != both["other"]
    assert tokens(lab) == alone
    assert tokens(other)["other"] == both["other"]
    assert tokens(lab, other) == both


def test_a_token_of_another_space_is_not_taken_over(tmp_path: Path) -> None:
    """Tokens of 0.1, of which nobody knows whose space they open, open none of several."""
    first = loaded(tmp_path, "spaces: {lab: {participants: {you: ['*']}}}").spaces["lab"]
    (tmp_path / ".moot/tokens/.space").unlink()
    spaces = loaded(
        tmp_path, "spaces: {lab: {participants: {you: ['*']}}, b: {participants: {you: ['*']}}}"
    ).spaces
    assert not set(first.tokens) & {token for space in spaces.values() for token in space.tokens}

"""`moot completion` in the shells that are here; the text of the scripts where one is not."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from moot.cli import main
from moot.cli.command_table import COMMANDS, make_parser
from moot.cli.completion import CompletedCommand, commands_of
from tests.waiting import HANG_SECONDS

# What a person has typed, the last word unfinished → what the shell offers, among others or alone.
TYPED = [
    (("me",), {"member", "members", "message"}),
    (("member", "gr"), {"grant"}),
    (("member", "grant", "--g"), {"--gateway"}),
    (("bridge", "--dialect", ""), {"mew", "mcpx", "m3p"}),
    (("mcp", "--print-config", "cur"), {"cursor"}),
    (("completion", ""), {"bash", "zsh", "fish"}),
    (("send", "members", "--js"), {"--json"}),
    (("no-such", "--da"), set()),
]


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The three scripts as files."""
    folder = tmp_path_factory.mktemp("completion")
    made = {}
    for shell in ("bash", "zsh", "fish"):
        with pytest.MonkeyPatch.context() as patch, (folder / shell).open("w", encoding="utf-8") as file:
            patch.setattr("sys.stdout", file)
            assert main(["completion", shell]) == 0
        made[shell] = folder / shell
    return made


def shell_output(*words: str) -> str:
    done = subprocess.run(  # noqa: S603  # words of our own
        words, capture_output=True, text=True, timeout=HANG_SECONDS, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def shell_or_skip(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed; the text of its script is tested below")
    return found


@pytest.mark.parametrize(("typed", "offered"), TYPED, ids=[" ".join(typed) for typed, _ in TYPED])
def test_bash_offers_commands_options_and_values(
    scripts: dict[str, Path], typed: tuple[str, ...], offered: set[str]
) -> None:
    code = (
        'source "$1"; shift; COMP_WORDS=(moot "$@"); COMP_CWORD=$#; _moot; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    assert set(shell_output("bash", "-c", code, "bash", str(scripts["bash"]), *typed).split()) == offered


@pytest.mark.parametrize(("typed", "offered"), TYPED, ids=[" ".join(typed) for typed, _ in TYPED])
def test_zsh_offers_commands_options_and_values(
    scripts: dict[str, Path], typed: tuple[str, ...], offered: set[str]
) -> None:
    # Its own functions need a line editor: in their place, one that prints what begins as the word does.
    code = """
        compdef() { :; }
        _files() { :; }
        _describe() {
            for each in ${(P)4}; [[ $each == $PREFIX* ]] && print -r -- ${each%%:*}
            return 0
        }
        source $1; shift
        words=(moot "$@"); CURRENT=$#words; PREFIX=$words[-1]
        _moot
    """
    zsh = shell_or_skip("zsh")
    assert set(shell_output(zsh, "-f", "-c", code, "zsh", str(scripts["zsh"]), *typed).split()) == offered


def test_zsh_finds_the_script_in_a_folder_of_completions(scripts: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "_moot").write_text(scripts["zsh"].read_text("utf-8"), "utf-8")
    code = "fpath=($1 $fpath); autoload -Uz compinit; compinit -u -D; print -r -- $_comps[moot]"
    assert shell_output(shell_or_skip("zsh"), "-f", "-c", code, "zsh", str(tmp_path)) == "_moot\n"


@pytest.mark.parametrize(("typed", "offered"), TYPED, ids=[" ".join(typed) for typed, _ in TYPED])
def test_fish_offers_commands_options_and_values(
    scripts: dict[str, Path], typed: tuple[str, ...], offered: set[str]
) -> None:
    fish = shell_or_skip("fish")
    code = "source $argv[1]; complete -C (string join ' ' -- moot $argv[2..])"
    lines = shell_output(fish, "--no-config", "-c", code, str(scripts["fish"]), *typed).splitlines()
    assert {line.partition("\t")[0] for line in lines} == offered


def everything() -> list[CompletedCommand]:
    return list(commands_of(make_parser(COMMANDS)))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_names_every_command_option_and_choice(scripts: dict[str, Path], shell: str) -> None:
    text = scripts[shell].read_text("utf-8")
    for command in everything():
        assert " ".join(command.path) in text
        for option in command.options:
            for name in option.names:
                assert (name.lstrip("-") if shell == "fish" else name) in text
            for choice in option.choices:
                assert choice in text


def test_hidden_options_are_not_offered() -> None:
    """`--token SECRET` is refused; nobody should be led to it."""
    assert "--token" not in {
        name for each in everything() for option in each.options for name in option.names
    }


def test_files_are_offered_where_a_file_is_meant(scripts: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "bob.token").touch()
    code = (
        'cd "$2"; source "$1"; COMP_WORDS=(moot send --token-file bo); COMP_CWORD=3; _moot; echo "$COMPREPLY"'
    )
    assert shell_output("bash", "-c", code, "bash", str(scripts["bash"]), str(tmp_path)) == "bob.token\n"

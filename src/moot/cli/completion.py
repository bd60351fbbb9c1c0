"""`moot completion`: a script that completes commands, options and their values in bash, zsh or fish.

The script is written from the parsers once and holds everything itself, so a key press starts no Python.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from moot.cli.process import program

_EXAMPLES: Final = """\
  moot completion bash > ~/.local/share/bash-completion/completions/moot
  moot completion zsh > "${fpath[1]}/_moot"                  then start a new shell
  moot completion fish > ~/.config/fish/completions/moot.fish
  source <(moot completion bash)                             only in this shell
"""
# Arguments whose value is a file or a folder, by what the help calls it.
_FILES: Final = frozenset({"FILE", "DIR", "DATA", "CONFIG"})


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a command: its spellings, and the values that it takes."""

    names: tuple[str, ...]
    help: str
    takes_value: bool
    takes_file: bool
    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CompletedCommand:
    """A command or a group: the words behind `moot` that call it, and what may follow them."""

    path: tuple[str, ...]
    subcommands: tuple[tuple[str, str], ...]
    options: tuple[Option, ...]
    # What arguments without a name can be.
    choices: tuple[str, ...]
    takes_file: bool


def add_command(commands: Any, name: str) -> None:
    parser = program.add_command(
        commands,
        name,
        help="print a script that completes commands in bash, zsh or fish",
        about="Prints a script that lets the shell complete commands, options and their values.",
        examples=_EXAMPLES,
    )
    parser.add_argument("shell", choices=tuple(_SCRIPTS), help="the shell that will read the script")
    parser.set_defaults(run=run_completion)


def run_completion(options: argparse.Namespace) -> int:
    from moot.cli.command_table import COMMANDS, make_parser

    found = list(commands_of(make_parser(COMMANDS)))
    print("\n".join(_SCRIPTS[options.shell](found)))
    return 0


def commands_of(parser: argparse.ArgumentParser, path: tuple[str, ...] = ()) -> Iterator[CompletedCommand]:
    """A parser and all parsers below it, as what a shell completes."""
    options: list[Option] = []
    subcommands: list[tuple[str, str]] = []
    choices: list[str] = []
    takes_file = False
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {each.dest: each.help or "" for each in action._choices_actions}
            subcommands += [(name, helps.get(name, "")) for name in action.choices]
        elif action.help == argparse.SUPPRESS:
            continue
        elif action.option_strings:
            options.append(
                Option(
                    names=tuple(action.option_strings),
                    help=action.help or "",
                    takes_value=action.nargs != 0,
                    takes_file=action.metavar in _FILES,
                    choices=tuple(map(str, action.choices or ())),
                )
            )
        else:
            choices += map(str, action.choices or ())
            takes_file = takes_file or action.metavar in _FILES
    yield CompletedCommand(path, tuple(subcommands), tuple(options), tuple(choices), takes_file)
    for name, command in program.subcommands_of(parser).items():
        yield from commands_of(command, (*path, name))


def _bash_script(commands: Sequence[CompletedCommand]) -> list[str]:
    lines = [
        "# bash completion of moot, written by `moot completion bash`",
        "_moot() {",
        '  local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}"',
        '  local command="" word values="" options="" files=""',
        '  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do',
        *_find_command(commands, opening=""),
        "  done",
        '  case "$command:$previous" in',
    ]
    for each in commands:
        for option in _with_values(each):
            values = _quoted(" ".join(option.choices))
            lines.append(f"    {_patterns(each, option)}) values={values}{_files(option)} ;;")
    lines += ["    *)", '      case "$command" in']
    for each in commands:
        values = _quoted(" ".join([*(name for name, _ in each.subcommands), *each.choices]))
        options = _quoted(" ".join(name for option in each.options for name in option.names))
        path = _quoted(" ".join(each.path))
        lines.append(f"        {path}) values={values} options={options}{_files(each)} ;;")
    return [
        *lines,
        "      esac ;;",
        "  esac",
        '  [[ $current == -* ]] && values="$options" files=""',
        '  COMPREPLY=($(compgen -W "$values" -- "$current"))',
        "  if [[ -n $files ]]; then",
        "    compopt -o filenames 2>/dev/null",
        '    COMPREPLY+=($(compgen -f -- "$current"))',
        "  fi",
        "}",
        "complete -F _moot moot",
    ]


def _zsh_script(commands: Sequence[CompletedCommand]) -> list[str]:
    lines = [
        "#compdef moot",
        "# zsh completion of moot, written by `moot completion zsh`",
        "_moot() {",
        '  local command="" word files=""',
        "  local -a values options",
        '  for word in "${(@)words[2,CURRENT-1]}"; do',
        *_find_command(commands, opening="("),
        "  done",
        '  case "$command:${words[CURRENT-1]}" in',
    ]
    for each in commands:
        for option in _with_values(each):
            values = " ".join(map(_quoted, option.choices))
            lines.append(f"    ({_patterns(each, option)}) values=({values}){_files(option)} ;;")
    lines += ["    (*)", '      case "$command" in']
    for each in commands:
        described = [f"{name}:{help}" for name, help in each.subcommands]
        values = " ".join(map(_quoted, [*described, *each.choices]))
        options = " ".join(
            _quoted(f"{name}:{option.help}") for option in each.options for name in option.names
        )
        path = _quoted(" ".join(each.path))
        lines.append(f"        ({path}) values=({values}) options=({options}){_files(each)} ;;")
    return [
        *lines,
        "      esac ;;",
        "  esac",
        "  if [[ $PREFIX == -* ]]; then",
        "    _describe -t options 'option' options",
        "  else",
        "    (( $#values )) && _describe -t values 'value' values",
        "    [[ -n $files ]] && _files",
        "  fi",
        "  return 0",
        "}",
        # Loaded from a folder of completions it is called; sourced, it registers itself.
        'if [[ "${funcstack[1]}" == _moot ]]; then _moot "$@"; else compdef _moot moot; fi',
    ]


def _find_command(commands: Sequence[CompletedCommand], *, opening: str) -> list[str]:
    """Lines of bash or zsh that set `command` to the command which the words so far call."""
    paths = [_quoted(" ".join(each.path)) for each in commands if each.path]
    return [
        '    case "${command:+$command }$word" in',
        *(f"      {opening}{path}) command={path} ;;" for path in paths),
        "    esac",
    ]


def _with_values(command: CompletedCommand) -> Iterator[Option]:
    return (option for option in command.options if option.takes_value)


def _patterns(command: CompletedCommand, option: Option) -> str:
    return "|".join(_quoted(f"{' '.join(command.path)}:{name}") for name in option.names)


def _files(argument: CompletedCommand | Option) -> str:
    return " files=1" if argument.takes_file else ""


def _fish_script(commands: Sequence[CompletedCommand]) -> list[str]:
    lines = [
        "# fish completion of moot, written by `moot completion fish`",
        "function __moot_at",
        "  set -l command",
        "  for word in (commandline -opc)[2..]",
        '    switch (string join " " -- $command $word)',
        *(
            f"      case {_fish_quoted(' '.join(each.path))}\n        set command {' '.join(each.path)}"
            for each in commands[1:]
        ),
        "    end",
        "  end",
        '  test "$command" = "$argv"',
        "end",
        "complete -c moot -f",
    ]
    for each in commands:
        start = f"complete -c moot -n {_fish_quoted(' '.join(['__moot_at', *each.path]))}"
        lines += [f"{start} -a {name} -d {_fish_quoted(help)}" for name, help in each.subcommands]
        lines += [f"{start} -a {_fish_quoted(choice)}" for choice in each.choices]
        if each.takes_file:
            lines.append(f"{start} -F")
        lines += [f"{start} {_fish_option(option)}" for option in each.options]
    return lines


def _fish_option(option: Option) -> str:
    parts = [f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names]
    if option.takes_file:
        parts.append("-r -F")
    elif option.takes_value:
        parts.append("-x")
    if option.choices:
        parts.append(f"-a {_fish_quoted(' '.join(option.choices))}")
    return " ".join([*parts, f"-d {_fish_quoted(option.help)}"])


def _quoted(text: str) -> str:
    """For bash and zsh."""
    return "'" + text.replace("'", "'\\''") + "'"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


_SCRIPTS: Final = {"bash": _bash_script, "zsh": _zsh_script, "fish": _fish_script}

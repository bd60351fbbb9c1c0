"""What the three programs share: reading the command line, and saying in one line what went wrong.

Nobody is shown a traceback. A mistake of the caller, a folder without permission, a disk that is full or a
reader that has gone each end in one line on stderr and an exit code that is not 0. `exit_codes` lists them.
"""

from __future__ import annotations

import argparse
import errno
import gc
import os
import signal
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from typing import IO, Any, Final, NoReturn

from moot import tracing
from moot.cli.process.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_READER_GONE, exit_code_of
from moot.errors import MootError

# What to do about an error of the operating system.
_ADVICE: Final = {
    errno.EACCES: "you have no permission; `ls -ld` shows who has, or name another place",
    errno.EPERM: "you have no permission; `ls -ld` shows who has, or name another place",
    errno.EROFS: "name a place on a disk that can be written",
    errno.ENOSPC: "free some room, or name a place on another disk",
    errno.EDQUOT: "free some room, or name a place on another disk",
    errno.ENOTDIR: "a file is in the place of a folder; name another place, or move the file away",
    errno.EISDIR: "it is a folder; name a file",
    errno.EMFILE: "raise the limit with `ulimit -n 4096`",
    errno.ELOOP: "it is a symbolic link that leads nowhere",
    errno.ENAMETOOLONG: "choose a shorter name",
}

# Without the name of a file these are about what we print: files that we write ourselves are named.
_OF_OUTPUT: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})

# Options of earlier versions, alone or with the command that had them, and what to do instead.
FORMER_OPTIONS: Final = {
    "--timeout": "leave it out: this command waits for nobody's answer",
    "moot mcp --idle-seconds": "leave it out: whoever has sent nothing for 10 minutes leaves the space",
}

# New objects before garbage is looked for, and how often that goes further back. Who keeps many messages
# has few circles and much that stays: with the usual (700, 10, 10) much of its CPU goes into looking.
_GARBAGE_THRESHOLDS: Final = (20_000, 20, 50)
# The first time: what a command makes to begin with stays, and most have ended by then.
_FIRST_GARBAGE_THRESHOLD: Final = 150_000

# How alike two words are before one is offered for the other: a letter or two, not another word.
_ALIKE: Final = 0.75

Explain = Callable[[argparse.Namespace, MootError], int]


class Parser(argparse.ArgumentParser):
    """Reads a command line. Options are written out: `--token` must never be taken for `--token-file`."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        options.setdefault("allow_abbrev", False)
        super().__init__(*arguments, **options)

    def _print_message(self, message: str, file: Any = None) -> None:
        # argparse keeps it to itself when help cannot be written.
        if message:
            (file or sys.stderr).write(message)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        choices = action.choices
        if choices is None or value in choices:
            return
        words = [str(choice) for choice in choices]
        hint = did_you_mean(str(value), words) or self._command_like(action, str(value))
        hint = hint or f"choose from {', '.join(words)}"
        raise argparse.ArgumentError(action, f"there is no {str(value)!r}; {hint}")

    def _command_like(self, action: argparse.Action, word: str) -> str | None:
        """Of what is a command of its own, and was looked for below another."""
        program, _, group = self.prog.partition(" ")
        if program != "moot" or not isinstance(action, argparse._SubParsersAction):
            return None
        from moot.cli.command_table import COMMANDS

        meant = f"{group}s" if word == "list" else word
        return f"`moot {meant}` is a command of its own" if meant in COMMANDS else None

    def _get_value(self, action: argparse.Action, text: str) -> Any:
        try:
            return super()._get_value(action, text)
        except argparse.ArgumentError:
            kind = {int: "a whole number", float: "a number"}.get(action.type)  # type: ignore[call-overload]
            if kind is None:
                raise
            raise argparse.ArgumentError(action, f"{text!r} is not {kind}") from None

    def parse(self, words: Sequence[str]) -> argparse.Namespace:
        """As `parse_args`, but an unknown argument is reported by the command that it was given to."""
        options, unknown = self.parse_known_args(words)
        if unknown:
            called = _parser_of(self, words)
            known = {name: action for action in called._actions for name in action.option_strings}
            before = known.get(words[words.index(unknown[0]) - 1])
            hint = None
            if unknown[0].startswith("-"):
                name = unknown[0].partition("=")[0]
                former = FORMER_OPTIONS.get(f"{called.prog} {name}") or FORMER_OPTIONS.get(name)
                hint = former or did_you_mean(name, known)
            elif before is not None and before.nargs == 0:
                hint = f"{before.option_strings[-1]} takes no value"
            called.error(f"unrecognized arguments: {' '.join(unknown)}" + (f"; {hint}" if hint else ""))
        return options


def _parser_of(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of the command that the words name."""
    choices = subcommands_of(parser)
    for position, word in enumerate(words):
        if word in choices:
            return _parser_of(choices[word], words[position + 1 :])
    return parser


def subcommands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The commands of a group by name; none for a command."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def add_command(commands: Any, name: str, *, help: str, about: str = "", examples: str, **more: Any) -> Any:
    """A command with its help: a line for the list, what it does, and examples. Returns its parser."""
    return commands.add_parser(
        name,
        help=help,
        description=about or f"{help[:1].upper()}{help[1:]}.",
        epilog=f"examples:\n{examples}",
        formatter_class=HelpFormatter,
        **more,
    )


def add_group(commands: Any, name: str, *, help: str, about: str = "", examples: str) -> Any:
    """A group of commands; without a command it prints its help. Returns what its commands are added to."""
    parser = add_command(commands, name, help=help, about=about, examples=examples)

    def print_help(_: argparse.Namespace) -> int:
        parser.print_help()
        return EXIT_OK

    parser.set_defaults(run=print_help)
    subcommands = parser.add_subparsers(metavar="COMMAND", title="commands")
    # What the group is for comes before its options.
    parser._action_groups.insert(0, parser._action_groups.pop())
    return subcommands


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Fills paragraphs to the terminal's width; one with indented lines, such as examples, stays as it is."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:  # noqa: ARG002  # argparse's own
        import textwrap

        paragraphs = text.strip("\n").split("\n\n")
        return "\n\n".join(
            paragraph
            if "\n  " in f"\n{paragraph}"
            else textwrap.fill(" ".join(paragraph.split()), width, break_on_hyphens=False)
            for paragraph in paragraphs
        )


class RefuseToken(argparse.Action):
    """`--token SECRET`: refused, and not repeated."""

    def __init__(self, option_strings: Sequence[str], dest: str, **_: Any) -> None:
        super().__init__(option_strings, dest, nargs="?", help=argparse.SUPPRESS)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        parser.error(
            "--token: a token on the command line is seen by all users of this machine (ps) and stays in the"
            " history of the shell. Put it into a file that only you can read (chmod 600) and name that with"
            " --token-file FILE; commands that people type also read MOOT_TOKEN_FILE and MOOT_TOKEN."
            " If this one was a real token, have another one made"
        )


def tells_errors(run: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """For a command whose errors quote others: they are escaped for a terminal, and JSON with `--json`."""

    @wraps(run)
    def tell(options: argparse.Namespace) -> int:
        try:
            return run(options)
        except MootError as fault:
            from moot.cli.client.operation_output import print_error

            return print_error(fault, as_json=getattr(options, "json", False))

    return tell


def did_you_mean(word: str, known: Collection[str]) -> str | None:
    """A question that offers the word that was probably meant; None if none is near."""
    import difflib

    close = difflib.get_close_matches(word, known, n=1, cutoff=_ALIKE)
    return f"did you mean {close[0]}?" if close else None


# Whether this process is a command of ours, and not somebody else's that calls one.
owns_process = False


def run_program(
    name: str,
    make_parser: Callable[[Sequence[str]], Parser],
    arguments: Sequence[str] | None,
    *,
    explain: Explain | None = None,
    check: Callable[[], None] | None = None,
) -> int:
    """Run the command that the arguments name; the exit code.

    `explain` tells of errors in its own way; `check` raises what keeps all commands from running.
    """
    global owns_process
    owns_process = arguments is None
    if owns_process:
        # picows asks of each connection whether it is one of aiofastnet, and would load that to find out.
        sys.modules.setdefault("aiofastnet", None)  # type: ignore[arg-type]
    _open_missing_streams()
    words = sys.argv[1:] if arguments is None else arguments
    try:
        code = _run(name, make_parser, words, explain, check)
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except Exception as fault:  # noqa: BLE001  # the last place there is: nothing may pass it
        code = _report(name, _cause(fault))
    if owns_process:
        # What is here ends with the process: nobody has to find out what of it is garbage.
        gc.freeze()
    return _flush_output(name, code)


def _run(
    name: str,
    make_parser: Callable[[Sequence[str]], Parser],
    words: Sequence[str],
    explain: Explain | None,
    check: Callable[[], None] | None,
) -> int:
    try:
        with _loading():
            parser = make_parser(words)
        options = parser.parse(words)
    except SystemExit as ended:
        # Help, the version, or a mistake in the call.
        code = _flush_output(name, ended.code if isinstance(ended.code, int) else 0)
        raise SystemExit(code) from None
    if owns_process and signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        # All is loaded: from here on a command may have something to put away.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _check_current_folder()
    try:
        if check is not None:
            check()
        if owns_process and tracing.is_wanted(os.environ):
            tracing.activate_from(os.environ, "-".join([name, *words[:1]]))
        code = options.run(options)
    except (MootError, ExceptionGroup) as fault:
        cause = _cause(fault)
        if explain is None or not isinstance(cause, MootError):
            raise
        code = explain(options, cause)
    return code


@contextmanager
def _loading() -> Iterator[None]:
    """Look for no garbage meanwhile: what a command loads stays, and looking takes a tenth of its start."""
    if not owns_process:
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.set_threshold(_FIRST_GARBAGE_THRESHOLD, *_GARBAGE_THRESHOLDS[1:])
        gc.callbacks.append(_look_more_often)
        gc.enable()


def _look_more_often(phase: str, _facts: object) -> None:
    if phase == "stop":
        gc.callbacks.remove(_look_more_often)
        gc.freeze()
        gc.set_threshold(*_GARBAGE_THRESHOLDS)


def _check_current_folder() -> None:
    try:
        os.getcwd()
    except OSError as fault:
        raise MootError(
            f"the current folder cannot be used ({fault.strerror}): it was probably deleted or moved."
            " Go to another one with cd and try again"
        ) from None


def _cause(fault: Exception) -> Exception:
    """What happened, out of the groups that tasks wrap it into; first what can be explained."""
    if not isinstance(fault, ExceptionGroup):
        return fault
    causes = [_cause(each) for each in fault.exceptions]
    explained = [each for each in causes if isinstance(each, MootError | OSError)]
    return (explained or causes)[0]


def _report(name: str, fault: Exception) -> int:
    """Say what went wrong; the exit code."""
    match fault:
        case MootError():
            words = str(fault)
        case BrokenPipeError() if fault.filename is None:
            _silence(sys.stdout)
            return EXIT_READER_GONE
        case OSError():
            words = os_error_text(fault)
            if fault.filename is None and fault.errno in _OF_OUTPUT:
                _silence(sys.stdout)
        case _ if type(fault).__module__ == "sqlite3":
            words = f"a database cannot be used: {fault}"
        case _:
            words = _bug_text(fault)
    for line in words.split("\n"):
        complain(f"{name}: {line}")
    return exit_code_of(fault)


def os_error_text(fault: OSError) -> str:
    """An error of the operating system in a sentence, with what to do about it."""
    words = [fault.strerror or str(fault) or type(fault).__name__]
    if fault.filename is not None:
        words.insert(
            0, os.fsdecode(fault.filename) if isinstance(fault.filename, bytes) else str(fault.filename)
        )
    elif fault.errno in _OF_OUTPUT:
        words.insert(0, "the output cannot be written")
    if fault.errno in _ADVICE:
        words.append(_ADVICE[fault.errno])
    return ": ".join(words)


def _bug_text(fault: Exception) -> str:
    """A mistake of ours: the traceback goes into a file for whoever mends it."""
    import tempfile
    import traceback

    what = f"{type(fault).__name__}: {fault}".rstrip(": ")
    try:
        handle, file = tempfile.mkstemp(prefix="moot-crash-", suffix=".txt")
        with open(handle, "w", encoding="utf-8", errors="backslashreplace") as opened:
            traceback.print_exception(fault, file=opened)
    except OSError:
        return f"this should not have happened: {what}. Please report it"
    return f"this should not have happened: {what}. Please report it, with the details in {file}"


def complain(line: str) -> None:
    """A line on stderr, as far as there is somebody to read it."""
    with suppress(OSError, ValueError):
        print(line, file=sys.stderr, flush=True)


def _flush_output(name: str, code: int) -> int:
    """Write what waits to be written, while its failure can still be told; the exit code."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _silence(sys.stdout)
        code = code or EXIT_READER_GONE
    except OSError as fault:
        _silence(sys.stdout)
        complain(f"{name}: {os_error_text(fault)}")
        code = code or EXIT_FAILED
    except ValueError:
        # Closed by somebody.
        pass
    with suppress(OSError, ValueError):
        sys.stderr.flush()
        return code
    _silence(sys.stderr)
    return code


def _silence(stream: IO[str]) -> None:
    """What still waits to be written goes nowhere, so that the end of the interpreter has nothing to say."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def _open_missing_streams() -> None:
    """Streams that the caller closed lead nowhere: otherwise the next file that is opened is one of them."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            with suppress(OSError):
                handle = os.open(os.devnull, os.O_RDWR)
                if handle != number:
                    os.dup2(handle, number)
                    os.close(handle)
                setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None and (stream.encoding or "").lower().replace("-", "") != "utf8":
            # A terminal that cannot show a character gets its number instead.
            reconfigure(errors="backslashreplace")

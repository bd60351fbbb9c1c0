"""Exit codes, the same for every command. `docs/how-to/use-the-shell.md` has this table for users.

0    done
1    it failed, and a line on stderr says why
2    a mistake in the call or in a configuration file; nothing was done
3    somebody said no: the gateway refused it, or a proposal was rejected or withdrawn
4    no answer in time
5    no connection: nobody listens there, the token is wrong, or the gateway closed the connection
6    whether it was done is not known: the host left, or the connection ended while it was at work
130  Ctrl-C
141  whoever read the output has gone (`| head`); nothing is said, as other programs do it
"""

from __future__ import annotations

from typing import Final

from moot.errors import MootError, Refused, UsageError

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_REFUSED: Final = 3
EXIT_TIMED_OUT: Final = 4
EXIT_NOT_CONNECTED: Final = 5
EXIT_UNKNOWN: Final = 6
EXIT_INTERRUPTED: Final = 130
# 128 + SIGPIPE: what a shell shows for a program that wrote into a closed pipe.
EXIT_READER_GONE: Final = 141


def exit_code_of(fault: Exception) -> int:
    """The exit code for an error that ended a command."""
    if not isinstance(fault, MootError):
        return EXIT_FAILED
    # The tree of errors is loaded, the rest of the SDK is not.
    from moot.errors import (
        CallOutcomeUnknown,
        ConnectionClosed,
        ConnectionLost,
        Expired,
        FolderInUse,
        NotAllowed,
        Rejected,
        TimedOut,
        Unreachable,
        Withdrawn,
    )

    # The call was right: the same one works when the other process has ended.
    if isinstance(fault, FolderInUse):
        return EXIT_FAILED
    if isinstance(fault, UsageError):
        return EXIT_USAGE
    if isinstance(fault, Refused | NotAllowed | Rejected | Withdrawn):
        return EXIT_REFUSED
    if isinstance(fault, TimedOut | Expired):
        return EXIT_TIMED_OUT
    if isinstance(fault, CallOutcomeUnknown | ConnectionLost):
        return EXIT_UNKNOWN
    if isinstance(fault, Unreachable | ConnectionClosed):
        return EXIT_NOT_CONNECTED
    return EXIT_FAILED

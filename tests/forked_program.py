"""Stands for a process that a server forks (`forking`): gives it all that it has, and ends as it does.

Run as `python -IS forked_program.py SOCKET PROGRAM WORDS…`, and short, since it is loaded each time.
"""

import _signal  # type: ignore[import-not-found]  # loaded faster than what is made of it
import _socket
import marshal
import os
import sys

_SIGNALS = (_signal.SIGHUP, _signal.SIGINT, _signal.SIGTERM, _signal.SIGUSR1, _signal.SIGUSR2)


def main() -> None:
    server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    server.connect(sys.argv[1])
    wanted = {
        "arguments": sys.argv[2:],
        "environ": dict(os.environ),
        "cwd": os.getcwd(),
        "umask": os.umask(0),
    }
    streams = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
    # What comes before there is a process waits for it.
    _signal.pthread_sigmask(_signal.SIG_BLOCK, _SIGNALS)
    server.sendmsg([marshal.dumps(wanted)], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
    pid = int.from_bytes(server.recv(4), sys.byteorder)

    def pass_on(number: int, _: object) -> None:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return

    for number in _SIGNALS:
        _signal.signal(number, pass_on)
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, _SIGNALS)
    ended = server.recv(4)
    code = int.from_bytes(ended, sys.byteorder, signed=True) if ended else 70
    if code < 0:
        if -code in _SIGNALS:
            _signal.signal(-code, _signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


main()

"""A process that forks others (`forking`), as seen from outside."""

from __future__ import annotations

import marshal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

_FORKED_PROGRAM = Path(__file__).with_name("forked_program.py")


class ForkServer:
    """One that listens in a folder; whoever knows the folder can ask it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = str(folder / "server")

    def command(self, program: str) -> list[str]:
        """What stands for a process of it, and is given its words."""
        return [sys.executable, "-IS", str(_FORKED_PROGRAM), self._path, program]

    def ask(self, request: Mapping[str, object], descriptors: Sequence[int]) -> socket.socket:
        """For a process, which lasts as long as what is returned is open."""
        asked = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        asked.connect(self._path)
        socket.send_fds(asked, [marshal.dumps(dict(request))], descriptors)
        return asked


class OwnForkServer(ForkServer):
    """One that we have started."""

    def __init__(self, module: str, *words: str, environ: Mapping[str, str] | None = None) -> None:
        self._temporary = TemporaryDirectory(prefix="moot-fork-")
        super().__init__(Path(self._temporary.name))
        self._control, theirs = socket.socketpair()
        with theirs, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(self._path)
            listener.listen(64)
            self._process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", module, str(listener.fileno()), *words],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                env=environ,
                cwd=Path(__file__).parent.parent,
                pass_fds=[listener.fileno()],
            )

    def end(self) -> None:
        """And all that it has started."""
        self._control.close()
        self._process.wait()
        self._temporary.cleanup()

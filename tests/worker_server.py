"""Loads all tests that are asked for, once, and forks the workers of pytest: see `forked_workers`."""

from __future__ import annotations

import socket
import sys

import pytest

from tests.forking import serve

if __name__ == "__main__":
    # Whatever fails here fails again in the workers, and is told there.
    pytest.main(["--collect-only", "-qq", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", *sys.argv[2:]])
    serve(socket.socket(fileno=int(sys.argv[1])))
    # What execnet gives a Python that it starts.
    exec(eval(sys.stdin.readline()))  # noqa: S102, S307

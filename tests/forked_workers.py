"""Workers of pytest that are forked when all tests are loaded: to load them is ten seconds of CPU.

A plugin for xdist. To measure coverage each worker has to load what it measures, so there they are not.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from tests.fork_server import OwnForkServer
from tests.warm_start import SDK_SERVER, SERVER, own_server


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: Sequence[Any]) -> None:
    if sys.platform != "linux" or config.getoption("cov_source", None):
        return
    os.environ[SERVER] = str(own_server().folder)
    os.environ[SDK_SERVER] = str(own_server("sdk").folder)
    server = OwnForkServer("tests.worker_server", *config.args)
    config.add_cleanup(server.end)
    for spec in specs:
        spec.python = shlex.join(server.command("worker"))

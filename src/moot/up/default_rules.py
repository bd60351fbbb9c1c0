"""The rules that a new space starts with: what people asked for runs, what others' words steer asks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import yaml

from moot.protocol.operation import Json

_HEADER: Final = """\
# The rules of this space; the first that matches decides. The approver reads this file again when it changes.
#
# Calls whose values people said are approved. Those that a value steers which came from somebody else (a
# mail, a page, a file), and those that can destroy something, are left to you, with the reason.
# Remove the rule, and every call asks. `moot origins list` shows what tools are said to do. More than `count`
# calls in an hour ask, too: an agent that runs away is noticed.
rules:
  - name: by-origin
    decision: approve
    tool: "*"
    extra_arguments: true
    ask: when_untrusted
    limits: {count: 5000, per: 1h}

# A call that only reads runs from then on once you have approved it. That a tool only reads counts when you
# have accepted what its server says of it: `moot origins accept SERVER`, or Rules in the console.
reads: remember

# What tools do. Of a tool that is not here the worst is assumed: others write what it returns, it reads
# private things, has an effect and reaches the outside.
"""


def rules_path(space: str) -> Path:
    """Where `moot rules run` looks for the rules of a space, below the folder of its moot.yaml."""
    return Path(".moot") / "trust" / space / "rules.yaml"


def default_rules(tools: Mapping[str, Json]) -> str:
    """The text of the rules file; `tools` says what tools do, by HOST/TOOL."""
    dumped = yaml.safe_dump({"tools": dict(tools)}, default_flow_style=None, sort_keys=False, width=200)
    return _HEADER + dumped

"""`moot rules`: rules that decide on proposals, and the approver that applies them."""

from __future__ import annotations

from typing import Any

from moot.cli.process import program
from moot.cli.rules import client, compare_commands, file_commands, import_command, run

_EXAMPLES = """\
  moot rules run --as approver               start deciding by rules; stays until it is stopped
  moot rules suggestions                     what the decisions so far support
  moot rules accept s-3fa1                   make a suggestion a rule
  moot rules list                            what decides now, how often it did, and what is suspended
  moot rules remove NAME                     a rule or a remembered call decides nothing any more
  moot rules stop                            nothing is decided by rules any more; `resume` undoes it
  moot rules test                            the tests in the rules file
  moot rules check                           what rules allow and nobody may have meant
  moot rules diff old.yaml new.yaml          which calls are decided differently
  moot rules replay                          what the rules would have decided over the history
  moot rules import settings.json --proposer agent   rules from the permissions of a coding agent
  moot rules report                          the share of decisions that was automatic, day by day
"""


def add_command(commands: Any, name: str) -> None:
    group = program.add_group(
        commands,
        name,
        help="rules that decide on proposals: look, accept, dismiss, stop",
        about="`moot rules run` starts the approver of a space; the other commands talk to it. What you say "
        "is seen by everybody and needs the capability for it: trust/accept, trust/dismiss, trust/stop. "
        "Looking needs mcp/request to the approver.",
        examples=_EXAMPLES,
    )
    run.add_command(group, "run")
    client.add_actions(group)
    file_commands.add_actions(group)
    compare_commands.add_actions(group)
    import_command.add_command(group, "import")

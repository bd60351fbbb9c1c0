"""The rules file that a command is about."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moot.errors import UsageError

if TYPE_CHECKING:
    from moot.trust.rules.rule import Rule
    from moot.trust.rules.rule_set import RuleSet

FILE_HELP: Final = "the rules (default: .moot/trust/SPACE/rules.yaml, if there is one such file)"


@dataclass(frozen=True, slots=True)
class RulesFile:
    """A rules file as it was read."""

    path: Path
    text: str
    rules: tuple[Rule, ...]
    cedar: tuple[str, ...]

    def read_all(self) -> RuleSet:
        """All that decides in the space of this file; raises UsageError."""
        from moot.trust.rules.cedar_policies import CedarPolicies
        from moot.trust.rules.remembered_calls import RememberedCalls
        from moot.trust.rules.rule_set import RuleSet

        folder = self.path.parent
        policies = CedarPolicies(folder, self.cedar) if self.cedar else None
        return RuleSet(self.rules, policies, RememberedCalls.open(folder))

    def print_unseen(self) -> None:
        """Tell what also decides in this space and is not looked at, so that nobody takes this for all."""
        if count := len(self.read_all().calls):
            calls, are = ("remembered call", "is") if count == 1 else ("remembered calls", "are")
            print(f"note: {count} {calls} (`moot rules list`) {are} not looked at here")


def read_rules_file(path: Path | None) -> RulesFile:
    """Read a rules file, or the only one of the spaces in this folder; raises UsageError."""
    from moot.trust.rules.rule_store import RULES_NAME
    from moot.trust.rules.rule_yaml import read_rule_file

    if path is None:
        found = sorted(Path(".moot", "trust").glob(f"*/{RULES_NAME}"))
        if len(found) != 1:
            there = (
                f"there are several: {', '.join(map(str, found))}"
                if found
                else "there is none in .moot/trust"
            )
            raise UsageError(f"name the rules file, since {there}")
        path = found[0]
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        raise UsageError(f"{path} cannot be read: {fault}") from None
    try:
        read = read_rule_file(text)
        return RulesFile(path, text, read.rules, read.cedar)
    except UsageError as fault:
        raise UsageError(f"{path}: {fault}") from None

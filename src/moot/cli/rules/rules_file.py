"""The rules file that a command is about."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from moot.errors import UsageError

if TYPE_CHECKING:
    from moot.trust.checks.beside_rules import BesideRules
    from moot.trust.rules.cedar_policies import CedarPolicies
    from moot.trust.rules.remembered_calls import RememberedCalls
    from moot.trust.rules.rule import Rule

FILE_HELP: Final = "the rules (default: .moot/trust/SPACE/rules.yaml, if there is one such file)"


@dataclass(frozen=True, slots=True)
class RulesFile:
    """A rules file as it was read."""

    path: Path
    text: str
    rules: tuple[Rule, ...]

    def read_policies(self) -> CedarPolicies | None:
        """The Cedar policies that it names; raises UsageError."""
        from moot.trust.rules.cedar_policies import CedarPolicies, read_cedar_files

        names = read_cedar_files(self.text)
        return CedarPolicies(self.path.parent, names) if names else None

    def read_remembered(self) -> RememberedCalls:
        """The calls that people want again, beside it; raises UsageError."""
        from moot.trust.rules.remembered_calls import RememberedCalls

        return RememberedCalls.open(self.path.parent)

    def read_beside(self) -> BesideRules:
        """What decides beside the rules; raises UsageError."""
        from moot.trust.checks.beside_rules import BesideRules

        return BesideRules(self.read_policies(), self.read_remembered())

    def print_unseen(self) -> None:
        """Tell what also decides in this space and is not looked at, so that nobody takes this for all."""
        if count := len(self.read_remembered()):
            calls, are = ("remembered call", "is") if count == 1 else ("remembered calls", "are")
            print(f"note: {count} {calls} (`moot rules list`) {are} not looked at here")


def read_rules_file(path: Path | None) -> RulesFile:
    """Read a rules file, or the only one of the spaces in this folder; raises UsageError."""
    from moot.trust.rules.rule_store import RULES_NAME
    from moot.trust.rules.rule_yaml import read_rules

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
        return RulesFile(path, text, read_rules(text))
    except UsageError as fault:
        raise UsageError(f"{path}: {fault}") from None

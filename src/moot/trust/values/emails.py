"""E-mail addresses: the whole domain is fixed, the name before it can vary. No display names, no tags."""

from __future__ import annotations

import re
from typing import Final

from moot.trust.values.atoms import Atom, Role, fixed

_ADDRESS: Final = re.compile(
    r"(?P<name>[A-Za-z0-9]+(?:[._-][A-Za-z0-9]+)*)(?P<tag>\+[A-Za-z0-9._-]+)?"
    r"@(?P<domain>[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)+)",
    re.ASCII,
)


def email_atoms(text: str) -> list[Atom] | None:
    """One address, or several with commas between them; None if it is anything else."""
    atoms: list[Atom] = []
    for at, part in enumerate(re.split(", ?", text)):
        found = _ADDRESS.fullmatch(part)
        if found is None or len(part) > 254:
            return None
        atoms += [fixed(", ")] if at else []
        # A tag can be a mailbox of its own; several addresses were approved as they stood together.
        role: Role = "word" if found["tag"] or "," in text else "stem"
        atoms.append(Atom(role, found["name"]))
        atoms.append(fixed((found["tag"] or "") + "@" + found["domain"].lower()))
    return atoms

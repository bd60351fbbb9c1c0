"""Plays the rounds of `bench/effects.py` with `ctrlrun`, in its environment; prints what was paid, as JSON.

    python bench/effect_rival.py ROUNDS.json FOLDER

Each call is made by a process of its own over one store, so that a kill is a kill. Nothing of Moot is loaded.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import ctrlrun  # type: ignore[import-not-found,unused-ignore]

POLICY = """
schema: ctrlrun.policy/v2
actions:
  bank.pay:
    effect: "pay:{invoice}/{payee}"
    rules:
      - decision: allow
"""


def call(folder: Path, agent: str, number: int, words: list[str], fault: str) -> int:
    """One call in a process of its own; its process id."""
    child = os.fork()
    if child:
        return child
    try:
        _call(folder, agent, number, words, fault)
    except (ctrlrun.CTRLRunError, ConnectionResetError) as refused:
        with (folder / "refused.txt").open("a", encoding="utf-8") as file:
            file.write(f"{number} {type(refused).__name__}\n")
    finally:
        # Never back into the loop of the parent.
        os._exit(0)


def _call(folder: Path, agent: str, number: int, words: list[str], fault: str) -> None:
    store = ctrlrun.SQLiteStateStore(str(folder / "state.db"))
    control = ctrlrun.Control(ctrlrun.Policy.from_file(folder / "policy.yaml"), store)

    @ctrlrun.protect("bank.pay", effect="pay:{invoice}/{payee}", control=control)  # type: ignore[untyped-decorator]
    def pay(invoice: str, payee: str, n: int) -> dict[str, Any]:  # noqa: ARG001 - the key names them
        if fault == "gone":
            os.kill(os.getpid(), signal.SIGKILL)
        with (folder / "paid.txt").open("a", encoding="utf-8") as ledger:
            ledger.write(f"{n}\n")
        if fault == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "lost":
            raise ConnectionResetError("the reply was lost")
        return {"status": "paid"}

    with ctrlrun.context(agent=agent):
        pay(invoice=words[0], payee=words[1], n=number)


def main() -> None:
    rounds, folder = json.loads(Path(sys.argv[1]).read_text("utf-8")), Path(sys.argv[2])
    (folder / "policy.yaml").write_text(POLICY, "utf-8")
    (folder / "paid.txt").touch()
    for each in rounds:
        calls = [call(folder, "agent", each["n"], each["first"], each["fault"])]
        if each["fault"] == "twice":
            calls.append(call(folder, "other", each["n"], each["first"], ""))
        for child in calls:
            os.waitpid(child, 0)
        os.waitpid(call(folder, "other", each["n"], each["second"], ""), 0)
    paid = Counter(int(line) for line in (folder / "paid.txt").read_text("utf-8").split())
    print(json.dumps(paid))


if __name__ == "__main__":
    main()

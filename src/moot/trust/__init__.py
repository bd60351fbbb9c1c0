"""Progressive automation: decisions become rules, safely (MEW 1, 2.1, 9.2, 9.4; MCPx 2.1, 9.4; D-28, D-92).

    journal ─▶ ledger ─▶ learning ─▶ suggestion ──a person accepts──▶ rule ─▶ verdict on the next proposal
                  ▲                     │ back-test, bound, near misses           │
                  └──── shadow, trip-wires, budgets ◀─────────────────────────────┘

`ledger_reader` and `rule_store` read and write files, `approver` talks to a space; the rest is pure.
"""

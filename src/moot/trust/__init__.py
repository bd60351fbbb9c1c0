"""Progressive automation: decisions become rules, safely (MEW 1, 2.1, 9.2, 9.4; MCPx 2.1, 9.4; D-28, D-92).

    journal ─▶ ledger ─▶ learning ─▶ suggestion ──a person accepts──▶ rule ─▶ verdict on the next proposal
                  ▲                     │ back-test, bound, near misses           │
                  └──── observe, trip-wires, budgets ◀─────────────────────────────┘

    approver                          talks to a space
    learning   checks   imports       suggestions; what can be said of rules without a space; rules of others
    rules
    history    values                 proposals and what became of them; what texts in arguments mean

`history/ledger_reader` and `rules/rule_store` read and write files; the rest below `approver` is pure.
"""

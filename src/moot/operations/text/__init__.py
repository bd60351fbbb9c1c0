"""What a person reads, as lines of plain text: calls, capabilities, envelopes, origins, rules, and tables."""

"""Regular languages: patterns, character sets, automata, and how they become rules."""

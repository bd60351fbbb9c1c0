"""Every number that bounds the compiler or its output, by name, with its origin."""

from __future__ import annotations

from typing import Final

# llama.cpp refuses 2,000 repetitions and counts what it unrolls; this stays clear of it.
REPETITIONS: Final = 1_900
# A larger repetition is built from blocks of so many; the block is one rule.
BLOCK: Final = 1_000
# Length and item bounds above this are not counted any more: the bound is dropped and noted. llguidance
# gives up in the middle of a text somewhere between 10,000 and 20,000 counted characters.
COUNT: Final = 10_000

# The input. The largest real schema that we know has 53 KB and depth 18; a contract ends at 64 KiB (D-74).
SCHEMA_BYTES: Final = 512 * 1024
SCHEMA_DEPTH: Final = 96
SCHEMA_NODES: Final = 20_000
# One `$id` or reference: they are joined with each other.
REFERENCE_CHARACTERS: Final = 2_000

# The output. A grammar beyond this helps no engine.
RULES: Final = 6_000
TEXT_CHARACTERS: Final = 1_000_000
NOTES: Final = 64
# llguidance reads about 14 parentheses within each other.
NESTING: Final = 8

# How many ways one place may branch after anyOf, oneOf, if and the like are multiplied out, how many
# choices may meet there, and how many schemas of one oneOf are held against each other.
ALTERNATIVES: Final = 512
CHOICES: Final = 48
COMPARED: Final = 200
# Members of all objects of a grammar, each way counted: what choices cost. Beyond it choices are not
# multiplied out any more. Some two seconds of a slow machine.
WRITTEN_MEMBERS: Final = 12_000
# Members of one anyOf that are offered beside its other schemas, times those schemas: each is written there.
OFFERED_MEMBERS: Final = 1_000
# Places within places, through references, too: the compiler recurses.
PLACES: Final = 100
# Members of one object. A contract ends at 512 (D-74); llguidance's parser takes about 1,000.
MEMBERS: Final = 900
# A row of more members than this is cut in halves. llguidance recurses through rules that follow each other:
# 500 overflow a stack of 2 MiB.
CHAINED_MEMBERS: Final = 100
# Where minProperties or maxProperties ask for counting: members (their rules follow each other), and
# members times what is counted.
COUNTED_ROW: Final = 150
COUNTED_MEMBERS: Final = 2_000
# Patterns of one object whose overlaps are told apart: 2 to this power kinds of names.
NAME_PATTERNS: Final = 3

# Regular expressions: depth and size of the source, size of the automata behind lookaheads and intersections.
PATTERN_CHARACTERS: Final = 4_000
PATTERN_DEPTH: Final = 40
PATTERN_BRANCHES: Final = 64
AUTOMATON_STEPS: Final = 6_000
AUTOMATON_STATES: Final = 1_200
# How far an automaton's states may follow each other, for the same reason as CHAINED_MEMBERS.
AUTOMATON_DEPTH: Final = 260
# All automata of one grammar together, in elementary steps: some seconds.
AUTOMATON_WORK: Final = 3_000_000
# States and rules of an automaton that is written without recursion.
FOLDED_STATES: Final = 48
FOLDED_WAYS: Final = 400

# Numbers: 308 digits are the most that always fit a double, and 1e999 is no number to many JSON readers.
INTEGER_DIGITS: Final = 308
# Zeros after the point before something else must come; smaller numbers are written with an exponent.
LEADING_ZEROS: Final = 24
LARGEST_DOUBLE: Final = "1.7976931348623157e308"
# Where numbers without an upper bound end, but for the largest itself: fewer digits, a shorter rule.
NEARLY_LARGEST_DOUBLE: Final = "1.797e308"
SMALLEST_DOUBLE: Final = "5e-324"
# A bounded range of multiples (multipleOf) with no more members than this is listed.
LISTED_MULTIPLES: Final = 512
# Other multiples are told by dividing digit by digit: remainders of the unit, decimal places of it (with
# more, Python writes the smallest multiples with an exponent), digits of a whole multiple (those of 64 bits),
# digits that a double keeps, and states of the division, each a rule.
REMAINDERS: Final = 64
DECIMAL_PLACES: Final = 4
MULTIPLE_DIGITS: Final = 19
DOUBLE_DIGITS: Final = 15
DIVISION_STATES: Final = 250
# Items of an array times what `contains` counts: each is a rule.
CONTAINED_COUNTS: Final = 200

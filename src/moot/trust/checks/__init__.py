"""What can be said about rules without a space: tests, differences, replays, proofs, explanations, Cedar."""

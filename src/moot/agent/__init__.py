"""An agent as a member of a space: a language model that sees what is said, calls tools or proposes to."""

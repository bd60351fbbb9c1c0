"""An agent as a member of a space: a language model that reads chat and calls or proposes tools."""

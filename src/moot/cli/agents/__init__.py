"""What joins a space as an agent, or reviews in its place: a model, ACP, A2A, the hook of a coding agent."""

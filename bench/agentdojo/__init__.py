"""AgentDojo and τ-bench through the product: MCP servers in real spaces, and an agent that believes all."""

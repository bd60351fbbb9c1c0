"""`moot verify`: the rows of OWASP AISVS 1.0 about agents (C9) and MCP (C10), asked of a configuration.

`deployment` has what is asked, `agent_checks` and `mcp_checks` a small function for each row that a
configuration can meet or miss, `rows` the table. A row that no configuration can fail is not checked here,
and says so: it never counts as met.
"""

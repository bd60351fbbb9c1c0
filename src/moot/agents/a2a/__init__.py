"""The Agent2Agent protocol: agents of others join a space, and members are published as agents."""

"""A whole space on this machine: making one, running it, showing one."""

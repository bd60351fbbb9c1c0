"""Taking part from a shell: a command for each operation, `moot join` to stay, `moot tail` to watch."""

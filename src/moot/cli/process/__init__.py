"""What all commands share: how one starts, what it prints, what ends it, and its exit code."""

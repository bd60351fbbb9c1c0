"""The member that decides by rules: it reads along, suggests rules, decides, and stops when it should."""

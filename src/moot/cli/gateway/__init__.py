"""The gateway alone: serving, applying changes, and what operators ask of one that runs."""

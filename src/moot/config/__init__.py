"""Settings from YAML into the typed values that each room takes. Mistakes name the path of the bad key."""

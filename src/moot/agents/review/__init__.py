"""A second opinion: a member that asks a model about proposals that wait for people, and can only say no."""

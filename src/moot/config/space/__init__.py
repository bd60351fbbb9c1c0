"""What a space is told by its file: limits, who may do what, and what calls need, cost and bring about."""

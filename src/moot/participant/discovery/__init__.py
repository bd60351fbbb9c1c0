"""What other members offer: learned from their lists, and whether we may use it."""

"""What the documents ask for, row by row, and vectors that show it: on the pure space, and on any gateway."""

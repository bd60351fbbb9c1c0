"""What outlives the process: the journal of a space, snapshots of its state, an index to look things up."""

"""Who belongs to a space, by which connections and how fast they may send, and what they are told of it."""

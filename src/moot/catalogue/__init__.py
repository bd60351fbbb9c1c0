"""What sources offer and faces show: names and whose they are, lists and how they change, and search."""

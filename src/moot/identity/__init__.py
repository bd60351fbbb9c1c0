"""Who somebody is: keys, their text forms, and the file that keeps them."""

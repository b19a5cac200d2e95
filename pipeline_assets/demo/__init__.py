"""Small corpora of every system, made from what Python ships and from what is made up: built offline."""

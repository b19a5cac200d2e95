"""Publishing: what goes with finished rows to a hub."""

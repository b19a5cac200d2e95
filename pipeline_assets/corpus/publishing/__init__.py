"""Publication of artifacts on a hub, with their descriptions."""

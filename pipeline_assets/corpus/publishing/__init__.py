"""Publication of finished rows on a hub."""

"""Sources of every kind → Document shards of one schema."""

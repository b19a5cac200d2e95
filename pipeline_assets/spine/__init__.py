"""How work is made safe: manifests, sealed artifacts, locks, shards and the engine. Knows nothing of text."""

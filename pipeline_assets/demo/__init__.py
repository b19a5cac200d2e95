"""The demo and the smoke runs: small made corpora of every system, and a hub on loopback."""

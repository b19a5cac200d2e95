"""Nemotron datasets: source rows, Harmony conversations, deduplication and pools."""

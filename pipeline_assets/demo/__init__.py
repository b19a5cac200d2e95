"""Demo and smoke runs on small generated corpora, offline."""

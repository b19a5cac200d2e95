"""Trust: verification, rebuilds and plans of artifacts."""

"""Trust: verification, rebuilds, plans and transfers of artifacts."""

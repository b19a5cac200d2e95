"""Pages of the systems: recipes, targets, kinds of artifacts."""

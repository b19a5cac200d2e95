"""Builds: recipes, kinds of artifacts and the driver that builds them."""

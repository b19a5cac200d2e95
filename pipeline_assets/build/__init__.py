"""How recipes are built: kinds of artifacts, runs, the one driver, and the recipe files that commands write."""

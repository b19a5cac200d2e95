"""Rows of sealed artifacts: found, followed to the rows of the files that they came from and back, shown, compared."""

"""Folders as a hub has them, made of small splits."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # of published
sys.path.insert(0, str(Path(__file__).parents[1] / "nemotron"))  # of rows_made
sys.path.insert(0, str(Path(__file__).parents[1] / "scoring"))  # of subsets_made

"""What tests of Nemotron rows share."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # of rows_made, real_rows

"""What tests of Harmony share."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # of harmony_oracle, harmony_made, harmony_data

"""The arrays that a dump is read as: its bytes, and numbers that places and values are."""

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Integers = NDArray[np.int64]

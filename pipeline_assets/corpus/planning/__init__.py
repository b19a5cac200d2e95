"""Planning: what a build will cost and give, told before it is run, and held against what it came to."""

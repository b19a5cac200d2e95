"""Token shards of corpora: how they are made, read in a mixture, counted, and cut into segments of a training."""

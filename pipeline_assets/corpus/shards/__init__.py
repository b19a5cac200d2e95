"""Token shards of corpora: staging, inventory, mixtures and segments."""

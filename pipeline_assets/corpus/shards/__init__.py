"""Token shards of corpora, with their inventories, mixtures and segments."""

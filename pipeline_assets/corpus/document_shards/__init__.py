"""Document shards on their way into an artifact: converted one by one, then published with every doc_id once."""

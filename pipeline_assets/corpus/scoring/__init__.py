"""NLL scores of completions under a language model."""

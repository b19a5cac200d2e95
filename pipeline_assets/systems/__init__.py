"""One page a system, read top to bottom: what a recipe says, what is made of it, and how."""

"""Nemotron: which rows the datasets have, what they hold, and raw rows → conversations as text."""

"""Verification: sealed artifacts and what they were made from, held against their manifests, in whole or in part."""

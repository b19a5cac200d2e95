"""Whether what is sealed can be trusted: verified, built again, planned against what earlier builds took."""

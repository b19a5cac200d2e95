"""Packing: Documents of several sources → one training set of rows of one length, weighted, every token traceable."""

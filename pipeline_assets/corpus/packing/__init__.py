"""Packing: documents of weighted sources in rows of equal length.

Every token can be traced to its document.
"""

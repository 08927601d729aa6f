"""Finds and reads stack files, and checks them against their provider. Mistakes are InputErrors."""

"""A machine that is about to be taken away: one interface for every source of the news. Imports nothing."""

"""Run records where they are kept: buckets, folders, their signatures and statistics."""

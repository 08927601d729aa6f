"""What is measured while a run goes on: the line of statistics and what stands in it. Imports nothing."""

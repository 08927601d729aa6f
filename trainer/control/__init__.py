"""What changes a run's resources while it trains: intervals are watched, a policy decides, actuators act, a judge
keeps or undoes. Imports nothing.
"""

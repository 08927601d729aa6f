"""What comes next: demand, spot price, interruptions, grid intensity, and how long a job still takes.

A baseline, quantiles by gradient boosting, conformal intervals, drift, and every forecast kept with its later truth.
"""

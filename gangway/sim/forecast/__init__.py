"""Forecasts of demand, spot price, interruptions, grid intensity and remaining time: a baseline, quantiles by gradient
boosting, conformal intervals, drift detection, and a ledger of forecasts with their later truth.
"""

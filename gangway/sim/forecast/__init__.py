"""Forecasts of demand, spot price, interruptions, grid intensity and remaining time, and the ledger of their truth."""

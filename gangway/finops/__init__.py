"""Money: prices, quotes, bills, audits."""

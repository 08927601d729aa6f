"""Commands about prices, costs, forecasts and bills."""

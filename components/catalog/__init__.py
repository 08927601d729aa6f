"""Facts about machines, prices, storage and regions, each with its source, date and confidence."""

"""Programs on machines of Azure."""

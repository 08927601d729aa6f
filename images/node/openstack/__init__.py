"""Programs on machines of OpenStack."""

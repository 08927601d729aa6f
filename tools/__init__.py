"""Programs for developers. Not shipped."""

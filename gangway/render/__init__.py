"""Drawing and rendering: shared plots and HTML pages."""

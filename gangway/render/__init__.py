"""Drawing and rendering: one way to plot, one way to make an HTML page, files written whole or not at all."""

"""Tools for developers, which no package ships."""

"""Tools that renew the data of the catalogue."""

"""Pages of the documentation that are generated when it is built: `make docs`."""

"""The store: where files lie, how they are written, and the SQL views over them."""

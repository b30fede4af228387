"""The store defines where files lie, how they are written, and the SQL views over them."""

"""The store defines where files are, how they are written, and the SQL views over them."""

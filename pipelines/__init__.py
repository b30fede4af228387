"""The jobs: the only place that imports ray or duckdb."""

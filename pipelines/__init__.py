"""The jobs behind the commands. Only this package imports ray and duckdb."""

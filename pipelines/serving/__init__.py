"""The web server of a model: one ASGI app, which runs by itself or on Ray Serve."""

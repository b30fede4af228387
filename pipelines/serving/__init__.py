"""The HTTP server of a model: an ASGI app that runs by itself or on Ray Serve."""

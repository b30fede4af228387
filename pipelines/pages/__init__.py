"""Generate pages of the documentation, mostly when `make docs` builds it."""

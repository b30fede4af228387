"""Generate synthetic datasets of any size in five formats, so that the system runs without downloads.

Each split has its own names and templates, so validation and test use ones that no other split has.
"""

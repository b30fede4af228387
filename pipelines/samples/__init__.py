"""An invented world in five original formats, at any size: what the system runs on without any download.

Names and templates are dealt to the splits: validation and test use names and templates that no other split has.
"""

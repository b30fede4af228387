"""The page of `ubert stats --html`."""

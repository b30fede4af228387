"""Print tables and records, and write the page of `ubert stats --html`."""

"""One file per task, each with an `OBJECTIVE`. A task is found by its file name."""

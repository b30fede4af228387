"""Find records with wrong annotations: models that were not trained on a record contradict its annotations."""

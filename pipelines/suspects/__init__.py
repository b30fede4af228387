"""Find records with wrong annotations: those that are contradicted by models which were not trained on them."""

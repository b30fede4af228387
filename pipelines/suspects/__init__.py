"""Which records are annotated wrongly? Those that models contradict which were not trained on them."""

"""Use trained models: predict, generate, evaluate, fit thresholds, write model cards."""

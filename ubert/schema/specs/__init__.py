"""What users write in YAML: the spec of a dataset, its mapping, rules and downloads, a mixture, a recipe."""

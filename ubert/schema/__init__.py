"""The nouns of the system: record, dataset spec, mixture, recipe, manifest. No torch here."""

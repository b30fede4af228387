"""From a checkpoint to typed predictions: long texts, many categories, overlaps."""

"""The data model: record, dataset spec, mixture, recipe, manifest. It does not import torch."""

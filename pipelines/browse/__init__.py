"""The pages of `ubert browse`: corpora, evidence, mixtures and runs of a store. They contain no scripts."""

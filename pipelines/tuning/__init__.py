"""Which sources of a mixture help which corpora, and in what proportion to mix them, learnt from short runs."""

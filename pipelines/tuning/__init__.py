"""Find out by short runs which sources of a mixture help which corpora, and in what proportion to mix them."""

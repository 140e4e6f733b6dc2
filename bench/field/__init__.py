"""Small inputs from public bug reports about mail servers, each with its siblings and the right value: the suite of `field.cases`."""

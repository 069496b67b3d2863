"""The certificate of a layout: a short training on it and in one process, in float64, compared number by number."""

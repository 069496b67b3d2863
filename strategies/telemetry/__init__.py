"""Step traces, wait times, clocks, counted communication."""

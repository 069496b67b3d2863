"""The layout advisor: the fastest layouts of a spec on given hardware, or on hardware that is measured."""

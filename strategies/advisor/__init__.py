"""The layout advisor's candidates, and its model of a step's time."""

"""The control-plane process."""

"""Sweeps: many trials of one job, submitted, advanced by a dispatcher, and cancelled."""

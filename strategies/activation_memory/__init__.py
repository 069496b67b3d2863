"""Activation checkpointing and offload."""

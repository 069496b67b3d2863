"""What happens around a training step."""

"""What a supervisor writes before it acts, so that its successor can go on."""

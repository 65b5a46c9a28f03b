"""What one training step takes: estimates, what they mean, and why they are what they are."""

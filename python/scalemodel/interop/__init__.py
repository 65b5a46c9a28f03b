"""Other tools: their settings, traces, logs and modules."""

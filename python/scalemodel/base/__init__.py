"""What every other package stands on: errors, units, texts, files, threads."""

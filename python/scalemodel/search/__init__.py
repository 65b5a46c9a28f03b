"""Many strategies at once: spaces, objectives, rankings and their files."""

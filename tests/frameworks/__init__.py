"""What tests ask of training frameworks and serving engines, where they are installed."""

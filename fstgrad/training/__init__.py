"""Training: templates of features, log-linear sequence models, and their optimization."""

"""Models that are trained: templates of features, log-linear sequence models, their training."""

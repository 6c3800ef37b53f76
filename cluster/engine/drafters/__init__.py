"""Sources of drafts: tokens guessed ahead of the target."""

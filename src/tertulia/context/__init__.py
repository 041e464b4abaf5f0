"""The hot context: a cache of what a model is shown, rebuilt from the log when it is behind."""

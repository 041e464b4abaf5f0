"""Wake-ups on a Redis stream: publish, consume, sweep."""

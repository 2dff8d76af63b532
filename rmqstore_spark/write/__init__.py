"""Writing a store: staged units in, a store that a broker starts on out. Only this package changes anything on disk."""

"""Code that fetches raw files; imported only when a data set is not on this computer."""

"""The page of a run: who counted, how much, and why. Saved as one file, or live in a browser."""

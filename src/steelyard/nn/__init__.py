"""Models and layers."""

"""Plain modules, written by hand: what makes the package robust and is not the
lesson."""

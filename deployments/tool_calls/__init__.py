"""Tool calls: what a request says about them, the grammar that forces them, and the parser that finds them in text."""

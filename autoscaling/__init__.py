"""Which replica plays which role, and how many there should be: pure decisions, and a simulator that runs them."""

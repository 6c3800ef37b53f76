"""Everything that needs neither Ray Serve nor HTTP: the engine, its types and its telemetry."""

"""How long tests wait for what comes soon: only what hangs takes longer, however busy the machine is."""

HANG = 3600.0  # seconds

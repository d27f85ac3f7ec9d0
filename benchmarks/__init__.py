"""Programs that show what the methods are worth; nothing here takes part in a measurement."""

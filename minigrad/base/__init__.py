"""What every package may use: exceptions, locks, files, command lines. It knows nothing of arrays."""

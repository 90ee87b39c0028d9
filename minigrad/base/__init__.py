"""What every room may use: exceptions, locks, files, what is said on a command line. It knows nothing of arrays."""

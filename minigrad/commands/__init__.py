"""The commands of `minigrad`, one file each."""

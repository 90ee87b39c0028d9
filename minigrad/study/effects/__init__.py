"""What heads do to the loss: by silencing them, by putting in what they have in another run, cell by cell."""

"""What a head's weights say, and what each token teaches them."""

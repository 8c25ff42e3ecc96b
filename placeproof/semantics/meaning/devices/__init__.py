"""What the devices of a place compute and exchange."""

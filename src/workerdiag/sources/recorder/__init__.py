"""What flight recorders wrote down."""

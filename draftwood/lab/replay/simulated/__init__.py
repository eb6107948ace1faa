"""A synthetic target, and drafters with given acceptance rates."""

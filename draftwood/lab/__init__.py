"""What measures, proves and trains: imported by the command line alone."""

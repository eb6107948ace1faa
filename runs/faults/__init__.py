"""What ``runs/server_faults.py`` does to a server."""

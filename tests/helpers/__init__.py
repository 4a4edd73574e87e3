"""What several test modules use; no test module imports another."""

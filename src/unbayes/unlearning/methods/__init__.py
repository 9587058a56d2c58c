"""The methods, one a file."""

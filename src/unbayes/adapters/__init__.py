"""Unlearning from within the tools people already use; each module needs the extra of its name."""

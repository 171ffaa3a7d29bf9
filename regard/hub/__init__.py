"""Hugging Face both ways: their folders become our models, and ours theirs, by one table for each family."""

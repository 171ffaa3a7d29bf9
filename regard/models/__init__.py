"""Whole models over the parts, and the recipes that describe them."""

"""Hugging Face and CTranslate2: their folders become our models, and ours become theirs, by one table per family."""

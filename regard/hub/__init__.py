"""Read and write Hugging Face folders, by one table of weights per family, and write models for CTranslate2."""

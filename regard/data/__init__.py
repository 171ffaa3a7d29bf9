"""Read text, tables and images; learn tokenizers; build corpora and batches."""

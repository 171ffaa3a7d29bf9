"""Reading what a person has: text, tables, images; tokenizers, corpora and batches."""

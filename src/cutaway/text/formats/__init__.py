"""Vocabularies as other tools write them, each made a tokenizer.json."""

"""Text to ids and back. From below: `tokenizer_json` (the one format that everything becomes), `byte_level` and
`sentencepiece_model` (kinds of vocabulary), `sentencepiece_ids`, `vocabulary_files` (what folders hold), `learning`,
`cutting` (the libraries that cut text), `tokenizer` over all, and `gguf_vocabulary` and `named_token` over that.
"""

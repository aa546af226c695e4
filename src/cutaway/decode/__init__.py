"""Logits to tokens: greedy and beam search, sampling, scoring, and what stands on them (translate, complete, fill)."""

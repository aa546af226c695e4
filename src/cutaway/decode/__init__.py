"""Logits to tokens. From the ground up: how a token is drawn (sampling), what is asked for (search), one step
(stepping), many of them (beam, generation), a model with its tokenizer (text_model), and what stands on that
(translator, complete, conversation, gaps). Beside them: scores of given texts (score), vectors of texts
(sentence_vectors)."""

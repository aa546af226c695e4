"""How each answer is laid out for a reader, in both languages. Only these files hold prose; they compute nothing."""

"""Chats as a model was taught to read them."""

"""The explorer's server: questions asked of models over HTTP, and the page that asks them."""

"""twoturn measures local LLM serving configurations and writes the article about them."""

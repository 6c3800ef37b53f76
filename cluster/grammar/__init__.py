"""Grammars that an answer must follow: from what a client asks for to the tokens that may come next. Free of torch."""

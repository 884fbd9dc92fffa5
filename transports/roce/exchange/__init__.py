"""How tools tell each other about their queue pairs before they use them."""

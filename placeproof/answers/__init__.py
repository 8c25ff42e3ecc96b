"""Answers: what an argument is, and what is derived and proved of it, as the command line and Python give it."""

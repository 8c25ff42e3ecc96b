"""Launch scripts: what a shell would hand to a program, worked out from the text of a script, which is never run."""

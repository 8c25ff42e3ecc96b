"""A whole model under a strategy as one program: the step around the blocks, and the blocks as they lie on the mesh."""

from placeproof.semantics.linked.data import Linked
from placeproof.semantics.linked.link import link
from placeproof.semantics.linked.text import read_linked, render_linked

__all__ = ["Linked", "link", "read_linked", "render_linked"]

"""Clusters as data: devices, nodes, levels of links, and which links a group of devices uses."""

from placeproof.clusters.cluster import Cluster, Device, Host, Level, Reached
from placeproof.clusters.files import cluster, find, load, names, read_text
from placeproof.clusters.groups import Group, ends

__all__ = ["Cluster", "Device", "Group", "Host", "Level", "Reached", "cluster", "ends", "find", "load", "names", "read_text"]

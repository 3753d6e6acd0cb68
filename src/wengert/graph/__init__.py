"""Static graphs: programs built once, node by node, and run on what is fed to their placeholders."""

from wengert.graph.graph import CompiledGraph, Graph
from wengert.graph.nodes import Node, Placeholder, Variable

__all__ = ["CompiledGraph", "Graph", "Node", "Placeholder", "Variable"]

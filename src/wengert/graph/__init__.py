"""Programs as objects: static graphs, and functions that are written to files and loaded without their source."""

from wengert.graph.export import LoadedProgram, export, load_program
from wengert.graph.graph import CompiledGraph, Graph
from wengert.graph.nodes import Node, Placeholder, Variable

__all__ = ["CompiledGraph", "Graph", "LoadedProgram", "Node", "Placeholder", "Variable", "export", "load_program"]

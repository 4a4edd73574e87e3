"""Edit grammars written in pynini, each a module with one public builder."""

"""The documentation site: what is generated for it, and how `make docs` puts it together.

`hook` is what mkdocs calls; `names` finds the public names, `reference` writes their pages, `curves` draws them.
"""

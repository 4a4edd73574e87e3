"""The commands of `fstgrad`; `fstgrad.cli.command_table` says which module has which.

Reading order
-------------
- `lattices`, `grad`, `loss` : objectives over pairs and over lattices; losses, marginals and
  alignments of pairs.
- `train`, `predict` : sequence models.
- `grm_tables`, `page`, `score_page`, `report` : tables of counts; HTML pages about runs.
- `score_systems`, `score` : error rates of hypotheses.
- `grammar_options`, `grammar_fit`, `grammar` : `fstgrad grammar`.
- `grm`, `trees`, `mrf` : the other families.
- `doctor`, `completion` : the installation.
"""

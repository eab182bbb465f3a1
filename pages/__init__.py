"""The numbers on the pages, written into them from `results/` and from the classes.

A page marks what is generated with two comments, which neither GitHub nor the site shows:

    <!-- adaptation.gain(svhn-mnist):.1f -->20.8<!-- end -->

stands for ``adaptation.gain("svhn-mnist")`` of this package, formatted with ``.1f``. A function
without arguments that returns several lines, such as a table, is marked in the same way. ``python
-m pages`` (``make pages``) fills every field of README.md and docs/ and redraws the picture of the
README; a test does the same and compares.
"""

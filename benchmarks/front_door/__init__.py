"""The front door on a file of a gigabyte: `tallchain fit` against reading the file and a maximum-likelihood fit.

A Parquet file of 10^7 rows: outcomes of 0 and 1, ten numbers, and a factor of 1000 levels. `tallchain fit` makes a
posterior of the regression with the factor as groups, and its report; beside it stand reading the file with pyarrow
and a fit of the numbers alone by scikit-learn. Peak memory is that of the whole process, imports and all, over the
design in float32.
"""

"""Rows that are times: `lags`, with errors and tests made for rows that depend on each other.

time_series      lags(x, y): information by lag, transfer entropy
pairs            two series, and which rows of them belong together
autocorrelations how much rows depend on those before them
surrogates       tests of independence
results          what was found, as data
reports          the same on one page
"""

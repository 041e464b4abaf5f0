"""Measurements as ratios within one run; clients, model server and servers are processes of their own."""
